import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import { followEventStream, type StreamState } from "@/api/event-stream";
import type { Schema } from "@/api/types";
import { useServerConnection } from "@/shell/status/server-connection";
import { EmptyState, ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { sandboxApiPath } from "./actions";
import { formatEventData } from "./format-event-data";
import styles from "./SandboxesPage.module.css";

type Event = Schema<"EventResponse">;
const MAX_EVENTS = 1_000;

/** Live events of a sandbox, newest first; also after it is `gone`. */
export function SandboxEvents({ id, gone }: { id: string; gone: boolean }) {
  const { t, i18n } = useTranslation();
  const [events, setEvents] = useState<Event[]>([]);
  const [link, setLink] = useState<{ state: StreamState; error?: ApiError }>({ state: "connecting" });
  const resumed = useServerConnection((state) => state.resumed);

  // biome-ignore lint/correctness/useExhaustiveDependencies: `resumed` retries a refused request.
  useEffect(() => {
    const stop = new AbortController();
    setEvents([]);
    void followEventStream(`${sandboxApiPath(id)}/events`, {
      signal: stop.signal,
      endsOnClose: true,
      onEvent: ({ data }) => setEvents((before) => [JSON.parse(data) as Event, ...before].slice(0, MAX_EVENTS)),
      onState: (state, error) => setLink({ state, error }),
    });
    return () => stop.abort();
  }, [id, resumed]);

  if (link.error instanceof ApiError && events.length === 0) return <ErrorState error={link.error} />;
  if (events.length === 0)
    return link.state === "connecting" ? <LoadingBars /> : <EmptyState title={t("sandboxes.events.none")} />;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
    <section className={styles.scroll} tabIndex={0} aria-label={t("sandboxes.events.title")}>
      {gone && <p className={styles.gone}>{t("sandboxes.gone")}</p>}
      <ol className={styles.events} reversed>
        {events.map((event) => (
          <li key={event.number}>
            <time dateTime={event.at} title={new Date(event.at).toLocaleString(i18n.language)}>
              {new Date(event.at).toLocaleTimeString(i18n.language, { hourCycle: "h23" })}
            </time>
            <span>{event.type}</span>
            <code>{formatEventData(event.data)}</code>
          </li>
        ))}
      </ol>
    </section>
  );
}
