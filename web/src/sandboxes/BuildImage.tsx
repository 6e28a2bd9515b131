import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Hammer } from "lucide-react";
import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { may, useMe } from "@/shell/me";
import { Button } from "@/ui/Button";
import { describe } from "@/ui/describe";
import { SANDBOXES } from "./actions";
import styles from "./Sandboxes.module.css";

type Build = Schema<"BuildSaid">;

const BUILDS = ["builds"];
/** Milliseconds between two looks at a build. */
const EVERY = 1000;

/** An image that is not built yet: says so, builds it for who may if there is a `recipe`, and shows how far that is. */
export function BuildImage({ image, recipe }: { image: string; recipe: boolean }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const builds = may(useMe().data, "admin") && recipe;
  const { data } = useQuery({
    queryKey: BUILDS,
    queryFn: ({ signal }) => api.get<Schema<"BuildList">>("/v1/images/builds", { signal }),
    enabled: builds,
    refetchInterval: (query) => (query.state.data?.items.some((each) => each.state === "running") ? EVERY : false),
  });
  const again = () => queries.invalidateQueries({ queryKey: BUILDS });
  const start = useMutation({
    mutationFn: () => api.post<Build>(`/v1/images/${encodeURIComponent(image)}/build`),
    onSettled: again,
  });
  const stop = useMutation({
    mutationFn: (id: string) => api.delete(`/v1/images/builds/${encodeURIComponent(id)}`),
    onSettled: again,
  });
  const build = data?.items.find((each) => each.image === image);
  const done = build?.state === "done" ? build.id : null;
  useEffect(() => {
    if (!done) return;
    for (const key of [SANDBOXES, "server", "runs"]) void queries.invalidateQueries({ queryKey: [key] });
  }, [done, queries]);

  if (!builds) return <p className={styles.soft}>{t("sandboxes.build.command", { image })}</p>;
  if (build?.state === "running") {
    return (
      <div className={styles.build} role="status">
        <div className={styles.buildHead}>
          <span>{t("sandboxes.build.running", { image, step: build.step })}</span>
          <Button size="small" onClick={() => stop.mutate(build.id)} busy={stop.isPending}>
            {t("sandboxes.build.stop")}
          </Button>
        </div>
        <progress value={build.fraction ?? undefined} max={1} aria-label={t("sandboxes.build.progress", { image })} />
        <code className={styles.buildLine}>{build.lines.at(-1) ?? ""}</code>
      </div>
    );
  }
  const error = start.error ? describe(start.error) : build?.state === "failed" ? build.error : null;
  return (
    <div className={styles.build}>
      <div className={styles.buildHead}>
        <span>{t("sandboxes.build.missing", { image })}</span>
        <Button size="small" icon={Hammer} onClick={() => start.mutate()} busy={start.isPending}>
          {t("sandboxes.build.go")}
        </Button>
      </div>
      {error && (
        <p role="alert" className={styles.buildError}>
          {error}
        </p>
      )}
    </div>
  );
}
