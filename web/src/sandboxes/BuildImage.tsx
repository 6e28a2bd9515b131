import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Hammer } from "lucide-react";
import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { Button } from "@/ui/controls/Button";
import { buildSteps } from "@/ui/format/build-steps";
import { errorText } from "@/ui/format/error-text";
import { translateServerText } from "@/ui/format/server-text";
import { SANDBOXES_QUERY } from "./actions";
import styles from "./SandboxesPage.module.css";

type Build = Schema<"ImageBuildResponse">;

const BUILDS = ["builds"];
/** Poll interval of a build, in milliseconds. */
const POLL_MS = 1000;

/**
 * Notice for an image that is not built: offers to build it if there is a `recipe` and the user may, and shows
 * progress.
 */
export function BuildImage({ image, recipe }: { image: string; recipe: boolean }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const builds = hasScope(useCurrentUser().data, "admin") && recipe;
  const { data } = useQuery({
    queryKey: BUILDS,
    queryFn: ({ signal }) => api.get<Schema<"ImageBuildListResponse">>("/v1/images/builds", { signal }),
    enabled: builds,
    refetchInterval: (query) => (query.state.data?.items.some((each) => each.state === "running") ? POLL_MS : false),
  });
  const refreshBuilds = () => queries.invalidateQueries({ queryKey: BUILDS });
  const start = useMutation({
    mutationFn: () => api.post<Build>(`/v1/images/${encodeURIComponent(image)}/build`),
    onSettled: refreshBuilds,
  });
  const stop = useMutation({
    mutationFn: (id: string) => api.delete(`/v1/images/builds/${encodeURIComponent(id)}`),
    onSettled: refreshBuilds,
  });
  const build = data?.items.find((each) => each.image === image);
  const done = build?.state === "done" ? build.id : null;
  useEffect(() => {
    if (!done) return;
    for (const key of [SANDBOXES_QUERY, "server", "runs"]) void queries.invalidateQueries({ queryKey: [key] });
  }, [done, queries]);

  if (!builds) return <p className={styles.soft}>{t("sandboxes.build.command", { image })}</p>;
  if (build?.state === "running") {
    const steps = buildSteps(build.stepNumber, build.stepCount);
    return (
      <div className={styles.build} role="status">
        <div className={styles.buildHead}>
          <span>
            {steps
              ? t("sandboxes.build.runningStep", { image, step: build.step, ...steps })
              : t("sandboxes.build.running", { image, step: build.step })}
          </span>
          <Button size="small" onClick={() => stop.mutate(build.id)} busy={stop.isPending}>
            {t("sandboxes.build.stop")}
          </Button>
        </div>
        <progress value={build.fraction ?? undefined} max={1} aria-label={t("sandboxes.build.progress", { image })} />
        <code className={styles.buildLine}>{build.lines.at(-1) ?? ""}</code>
      </div>
    );
  }
  const error = start.error
    ? errorText(start.error)
    : build?.state === "failed" && build.error
      ? translateServerText(build.error)
      : null;
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
