import { useQuery } from "@tanstack/react-query";
import { RefreshCw } from "lucide-react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { Button } from "@/ui/controls/Button";
import { QueryResult } from "@/ui/layout/query-states";
import { SANDBOXES_QUERY, sandboxApiPath } from "./actions";
import styles from "./SandboxesPage.module.css";

const PARTS = ["summary", "inspect", "logs"] as const;

/** Diagnostics of a sandbox: state, configuration and entrypoint log. */
export function SandboxDiagnostics({ id }: { id: string }) {
  const { t } = useTranslation();
  const query = useQuery({
    queryKey: [SANDBOXES_QUERY, "diagnostics", id],
    queryFn: async ({ signal }) => {
      const texts = await Promise.all(
        PARTS.map((part) => api.text(`${sandboxApiPath(id)}/diagnostics/${part}`, { signal })),
      );
      return PARTS.map((part, index) => ({ part, text: texts[index] ?? "" }));
    },
  });
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
    <section className={styles.scroll} tabIndex={0} aria-label={t("sandboxes.diagnostics.title")}>
      <div className={styles.form}>
        <div>
          <Button size="small" icon={RefreshCw} busy={query.isFetching} onClick={() => void query.refetch()}>
            {t("sandboxes.diagnostics.again")}
          </Button>
        </div>
        <QueryResult query={query}>
          {(parts) => (
            <>
              {parts.map(({ part, text }) => (
                <CodeBlock
                  key={part}
                  text={text || t("sandboxes.diagnostics.nothing")}
                  label={t(`sandboxes.diagnostics.${part}`)}
                  fileName={`${id}-${part}.txt`}
                  wrap
                />
              ))}
            </>
          )}
        </QueryResult>
      </div>
    </section>
  );
}
