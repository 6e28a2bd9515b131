import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import type { ApiError } from "@/api/client";
import { followEventStream } from "@/api/event-stream";
import { useUrlQuery } from "@/shell/navigation/useUrlQuery";
import { useServerConnection } from "@/shell/status/server-connection";
import { SearchBox, Select } from "@/ui/controls/forms";
import { Switch } from "@/ui/controls/Switch";
import { ErrorState } from "@/ui/layout/query-states";
import styles from "./UsagePage.module.css";

interface LogLine {
  number: number;
  at: string;
  level: "debug" | "info" | "warning" | "error" | "critical";
  event: string;
  fields: Record<string, unknown>;
}

const LEVELS = ["debug", "info", "warning", "error"];
const MAX_LINES = 1_000;
const FILTER_DELAY = 300;

/** Live view of the server's log. */
export function ServerLog() {
  const { t, i18n } = useTranslation();
  const { get, set } = useUrlQuery();
  const level = LEVELS.includes(get("level")) ? get("level") : "info";
  const searchText = get("q");
  const [following, setFollowing] = useState(true);
  const [lines, setLines] = useState<LogLine[]>([]);
  const [error, setError] = useState<ApiError | null>(null);
  const resumed = useServerConnection((state) => state.resumed);
  const frame = useRef<HTMLDivElement>(null);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a restarted server numbers its lines from the start.
  useEffect(() => {
    const stop = new AbortController();
    const received: LogLine[] = [];
    let showTimer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      showTimer = undefined;
      const newLines = received.splice(0);
      setLines((before) => [...before, ...newLines].slice(-MAX_LINES));
    };
    // Filter after a pause in typing.
    const startTimer = setTimeout(() => {
      setLines([]);
      setError(null);
      void followEventStream("/v1/logs", {
        query: { level, q: searchText, limit: 500 },
        signal: stop.signal,
        onEvent: ({ data }) => {
          received.push(JSON.parse(data) as LogLine);
          showTimer ??= setTimeout(show, 100);
        },
        onState: (_, problem) => setError(problem ?? null),
      });
    }, FILTER_DELAY);
    return () => {
      clearTimeout(startTimer);
      clearTimeout(showTimer);
      stop.abort();
    };
  }, [level, searchText, resumed]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: scroll down for new lines.
  useEffect(() => {
    if (following && frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [lines, following]);

  return (
    <section className={styles.section} aria-labelledby="log">
      <h2 id="log">{t("health.log.title")}</h2>
      <search className={styles.filters}>
        <SearchBox label={t("health.log.search")} value={searchText} onChange={(text) => set({ q: text })} />
        <Select
          aria-label={t("health.log.level")}
          value={level}
          onChange={(value) => set({ level: value === "info" ? "" : value })}
          options={LEVELS.map((value) => ({ value, label: t(`health.log.levels.${value}`) }))}
        />
        <Switch label={t("health.log.follow")} checked={following} onChange={setFollowing} />
      </search>
      {error ? (
        <ErrorState error={error} />
      ) : (
        <div
          className={styles.log}
          ref={frame}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
          tabIndex={0}
          role="log"
          aria-live="off"
          aria-label={t("health.log.title")}
        >
          <ol>
            {lines.map((line) => (
              <li key={line.number}>
                <time dateTime={line.at}>
                  {new Date(line.at).toLocaleTimeString(i18n.language, { hourCycle: "h23" })}
                </time>
                <span className={styles[line.level]}>{line.level}</span>
                <span className={styles.message}>
                  {line.event} <span className={styles.fields}>{logLineText(line.fields)}</span>
                </span>
              </li>
            ))}
            {lines.length === 0 && <li>{t("health.log.none")}</li>}
          </ol>
        </div>
      )}
    </section>
  );
}

/** `a=1 b=two`, with the exception below. */
function logLineText({ exception, ...fields }: Record<string, unknown>): string {
  const pairs = Object.entries(fields).map(([name, value]) => `${name}=${String(value)}`);
  return [pairs.join(" "), exception ? String(exception) : ""].filter(Boolean).join("\n");
}
