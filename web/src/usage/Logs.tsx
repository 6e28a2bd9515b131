import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import type { ApiError } from "@/api/client";
import { follow } from "@/api/streams";
import { useAddress } from "@/shell/address";
import { useConnection } from "@/shell/connection";
import { SearchBox, Select } from "@/ui/forms";
import { Switch } from "@/ui/Switch";
import { Failed } from "@/ui/states";
import styles from "./Usage.module.css";

interface LogLine {
  number: number;
  at: string;
  level: "debug" | "info" | "warning" | "error" | "critical";
  event: string;
  fields: Record<string, unknown>;
}

const LEVELS = ["debug", "info", "warning", "error"];
const KEPT = 1_000;
const PATIENCE = 300;

/** The newest lines of the server's log, and those that come. */
export function Logs() {
  const { t, i18n } = useTranslation();
  const { get, set } = useAddress();
  const level = LEVELS.includes(get("level")) ? get("level") : "info";
  const words = get("q");
  const [follows, setFollows] = useState(true);
  const [lines, setLines] = useState<LogLine[]>([]);
  const [error, setError] = useState<ApiError | null>(null);
  const resumed = useConnection((state) => state.resumed);
  const frame = useRef<HTMLDivElement>(null);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a server that was started anew counts its lines anew.
  useEffect(() => {
    const stop = new AbortController();
    const came: LogLine[] = [];
    let drawing: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      drawing = undefined;
      const news = came.splice(0);
      setLines((before) => [...before, ...news].slice(-KEPT));
    };
    // Not with every letter that is typed.
    const begin = setTimeout(() => {
      setLines([]);
      setError(null);
      void follow("/v1/logs", {
        query: { level, q: words, limit: 500 },
        signal: stop.signal,
        onFrame: ({ data }) => {
          came.push(JSON.parse(data) as LogLine);
          drawing ??= setTimeout(show, 100);
        },
        onState: (_, problem) => setError(problem ?? null),
      });
    }, PATIENCE);
    return () => {
      clearTimeout(begin);
      clearTimeout(drawing);
      stop.abort();
    };
  }, [level, words, resumed]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: new lines are what it goes down for.
  useEffect(() => {
    if (follows && frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [lines, follows]);

  return (
    <section className={styles.section} aria-labelledby="log">
      <h2 id="log">{t("health.log.title")}</h2>
      <search className={styles.filters}>
        <SearchBox label={t("health.log.search")} value={words} onChange={(text) => set({ q: text })} />
        <Select
          aria-label={t("health.log.level")}
          value={level}
          onChange={(value) => set({ level: value === "info" ? "" : value })}
          options={LEVELS.map((value) => ({ value, label: t(`health.log.levels.${value}`) }))}
        />
        <Switch label={t("health.log.follow")} checked={follows} onChange={setFollows} />
      </search>
      {error ? (
        <Failed error={error} />
      ) : (
        <div
          className={styles.log}
          ref={frame}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard.
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
                <span className={styles.said}>
                  {line.event} <span className={styles.fields}>{told(line.fields)}</span>
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

/** `a=1 b=two`, and what happened below. */
function told({ exception, ...fields }: Record<string, unknown>): string {
  const pairs = Object.entries(fields).map(([name, value]) => `${name}=${String(value)}`);
  return [pairs.join(" "), exception ? String(exception) : ""].filter(Boolean).join("\n");
}
