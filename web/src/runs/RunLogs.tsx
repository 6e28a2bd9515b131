import { Download } from "lucide-react";
import { useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import { downloadFile } from "@/api/client";
import { Button } from "@/ui/controls/Button";
import { Select } from "@/ui/controls/forms";
import { showErrorToast } from "@/ui/controls/toasts";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { EmptyState, ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { isRunOver, type RunDetail } from "./api";
import styles from "./run.module.css";
import { useRunLog } from "./useRunLog";

/** Live output of the run's entrypoint. */
export function RunLogs({ run }: { run: RunDetail }) {
  const { t } = useTranslation();
  const [search, setSearch] = useSearchParams();
  const name = search.get("log") === "agent.err" ? "agent.err" : "agent.out";
  const attempt = Math.min(run.attempt, Math.max(1, Number(search.get("attempt")) || run.attempt));
  const log = useRunLog(run.id, name, attempt);
  const output = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: scroll when content is added.
  useEffect(() => {
    if (atEnd.current && output.current) output.current.scrollTop = output.current.scrollHeight;
  }, [log.text]);
  const choose = (key: string, value: string) =>
    setSearch(
      (params) => {
        params.set(key, value);
        return params;
      },
      { replace: true },
    );
  const path = `/v1/runs/${run.id}/logs/${name}`;
  return (
    <div className={styles.logs}>
      <div className={styles.logHead}>
        <div className={styles.logChoice}>
          <Select
            aria-label={t("runs.log.which")}
            value={name}
            onChange={(chosen) => choose("log", chosen)}
            options={[
              { value: "agent.out", label: t("runs.log.out") },
              { value: "agent.err", label: t("runs.log.err") },
            ]}
          />
        </div>
        {run.attempt > 1 && (
          <div className={styles.logChoice}>
            <Select
              aria-label={t("runs.log.attempt")}
              value={String(attempt)}
              onChange={(chosen) => choose("attempt", chosen)}
              options={Array.from({ length: run.attempt }, (_, index) => ({
                value: String(index + 1),
                label: t("runs.attemptNumber", { attempt: index + 1 }),
              }))}
            />
          </div>
        )}
        <span className={styles.logNote}>
          {log.cut ? t("runs.log.cut") : log.isComplete || isRunOver(run.state) ? "" : t("runs.log.live")}
        </span>
        <Button
          size="small"
          icon={Download}
          onClick={() => void downloadFile(path, `${run.id}-${name}`, { attempt }).catch(showErrorToast)}
        >
          {t("common.download")}
        </Button>
      </div>
      {log.error ? <ErrorState error={log.error} /> : null}
      {log.text ? (
        <pre
          ref={output}
          className={styles.log}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
          tabIndex={0}
          onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
            atEnd.current = scrollHeight - scrollTop - clientHeight < 40;
          }}
        >
          {log.text}
        </pre>
      ) : log.isComplete ? (
        <EmptyState title={t("runs.log.none")}>{t("runs.log.noneHint")}</EmptyState>
      ) : (
        !log.error && <LoadingBars />
      )}
    </div>
  );
}
