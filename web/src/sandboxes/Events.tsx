import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import { follow, type LinkState } from "@/api/streams";
import type { Schema } from "@/api/types";
import { useConnection } from "@/shell/connection";
import { Empty, Failed, Loading } from "@/ui/states";
import { pathOf } from "./actions";
import { told } from "./eventText";
import styles from "./Sandboxes.module.css";

type Event = Schema<"EventSaid">;
const KEPT = 1_000;

/** What happened to a sandbox, as it happens, the newest first; also if it is `gone` since. */
export function Events({ id, gone }: { id: string; gone: boolean }) {
  const { t, i18n } = useTranslation();
  const [events, setEvents] = useState<Event[]>([]);
  const [link, setLink] = useState<{ state: LinkState; error?: ApiError }>({ state: "connecting" });
  const resumed = useConnection((state) => state.resumed);

  // biome-ignore lint/correctness/useExhaustiveDependencies: `resumed` begins anew what was refused.
  useEffect(() => {
    const stop = new AbortController();
    setEvents([]);
    void follow(`${pathOf(id)}/events`, {
      signal: stop.signal,
      ends: true,
      onFrame: ({ data }) => setEvents((before) => [JSON.parse(data) as Event, ...before].slice(0, KEPT)),
      onState: (state, error) => setLink({ state, error }),
    });
    return () => stop.abort();
  }, [id, resumed]);

  if (link.error instanceof ApiError && events.length === 0) return <Failed error={link.error} />;
  if (events.length === 0)
    return link.state === "connecting" ? <Loading /> : <Empty title={t("sandboxes.events.none")} />;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard.
    <section className={styles.scroll} tabIndex={0} aria-label={t("sandboxes.events.title")}>
      {gone && <p className={styles.gone}>{t("sandboxes.gone")}</p>}
      <ol className={styles.events} reversed>
        {events.map((event) => (
          <li key={event.number}>
            <time dateTime={event.at} title={new Date(event.at).toLocaleString(i18n.language)}>
              {new Date(event.at).toLocaleTimeString(i18n.language, { hourCycle: "h23" })}
            </time>
            <span>{event.type}</span>
            <code>{told(event.data)}</code>
          </li>
        ))}
      </ol>
    </section>
  );
}
