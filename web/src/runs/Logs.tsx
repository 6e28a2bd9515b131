import { Download } from "lucide-react";
import { useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import { download } from "@/api/client";
import { Button } from "@/ui/Button";
import { Select } from "@/ui/forms";
import { useSearchParams } from "@/ui/search";
import { Empty, Failed, Loading } from "@/ui/states";
import { toastError } from "@/ui/toasts";
import { isOver, type WholeRun } from "./asking";
import styles from "./run.module.css";
import { useLog } from "./useLog";

/** What the entrypoint writes, as it writes it. */
export function Logs({ run }: { run: WholeRun }) {
  const { t } = useTranslation();
  const [search, setSearch] = useSearchParams();
  const name = search.get("log") === "agent.err" ? "agent.err" : "agent.out";
  const attempt = Math.min(run.attempt, Math.max(1, Number(search.get("attempt")) || run.attempt));
  const log = useLog(run.id, name, attempt);
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: whenever there is more to see.
  useEffect(() => {
    if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [log.text]);
  const choose = (key: string, value: string) =>
    setSearch(
      (now) => {
        now.set(key, value);
        return now;
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
          {log.cut ? t("runs.log.cut") : log.whole || isOver(run.state) ? "" : t("runs.log.live")}
        </span>
        <Button
          size="small"
          icon={Download}
          onClick={() => void download(path, `${run.id}-${name}`, { attempt }).catch(toastError)}
        >
          {t("common.download")}
        </Button>
      </div>
      {log.error ? <Failed error={log.error} /> : null}
      {log.text ? (
        <pre
          ref={box}
          className={styles.log}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard.
          tabIndex={0}
          onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
            atEnd.current = scrollHeight - scrollTop - clientHeight < 40;
          }}
        >
          {log.text}
        </pre>
      ) : log.whole ? (
        <Empty title={t("runs.log.none")}>{t("runs.log.noneHint")}</Empty>
      ) : (
        !log.error && <Loading />
      )}
    </div>
  );
}
