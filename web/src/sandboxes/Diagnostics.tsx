import { useQuery } from "@tanstack/react-query";
import { RefreshCw } from "lucide-react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Loaded } from "@/ui/states";
import { pathOf, SANDBOXES } from "./actions";
import styles from "./Sandboxes.module.css";

const PARTS = ["summary", "inspect", "logs"] as const;

/** What helps to find a mistake: how it is, what it was made of, and what its entrypoint wrote. */
export function Diagnostics({ id }: { id: string }) {
  const { t } = useTranslation();
  const query = useQuery({
    queryKey: [SANDBOXES, "diagnostics", id],
    queryFn: async ({ signal }) => {
      const texts = await Promise.all(PARTS.map((part) => api.text(`${pathOf(id)}/diagnostics/${part}`, { signal })));
      return PARTS.map((part, index) => ({ part, text: texts[index] ?? "" }));
    },
  });
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard.
    <section className={styles.scroll} tabIndex={0} aria-label={t("sandboxes.diagnostics.title")}>
      <div className={styles.form}>
        <div>
          <Button size="small" icon={RefreshCw} busy={query.isFetching} onClick={() => void query.refetch()}>
            {t("sandboxes.diagnostics.again")}
          </Button>
        </div>
        <Loaded query={query}>
          {(parts) => (
            <>
              {parts.map(({ part, text }) => (
                <Code
                  key={part}
                  text={text || t("sandboxes.diagnostics.nothing")}
                  label={t(`sandboxes.diagnostics.${part}`)}
                  fileName={`${id}-${part}.txt`}
                  wrap
                />
              ))}
            </>
          )}
        </Loaded>
      </div>
    </section>
  );
}
