import { useQuery } from "@tanstack/react-query";
import { Box, MessageCircle, Play } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { kindOf, originOf } from "@/sandboxes/facts";
import { useSnapshotNames } from "@/sandboxes/useSnapshotNames";
import { may, useMe } from "@/shell/me";
import { Badge, type Tone } from "@/ui/Badge";
import { Loaded } from "@/ui/states";
import { Time } from "@/ui/Time";
import styles from "./Welcome.module.css";

const FEW = 6;
const EVERY = 5_000;
const SESSION_TONES: Record<Schema<"SessionState">, Tone> = {
  idle: "neutral",
  running: "info",
  waiting: "warning",
  parked: "warning",
};
const RUN_TONES: Record<Schema<"RunState">, Tone> = {
  queued: "neutral",
  running: "info",
  succeeded: "good",
  failed: "danger",
  timed_out: "danger",
  cancelled: "neutral",
  lost: "danger",
  over_budget: "danger",
};

export function useChats() {
  const me = useMe().data;
  return useQuery({
    queryKey: ["welcome", "chats"],
    queryFn: ({ signal }) => api.get<Schema<"SessionList">>("/v1/sessions", { query: { pageSize: FEW }, signal }),
    enabled: may(me, "sessions:read"),
    refetchInterval: EVERY,
  });
}

/** What is running, and what was used last. Nothing is shown of what there is none of. */
export function Now() {
  const { t } = useTranslation();
  const me = useMe().data;
  const chats = useChats();
  const runs = useQuery({
    queryKey: ["welcome", "runs"],
    queryFn: ({ signal }) => api.get<Schema<"RunList">>("/v1/runs", { query: { pageSize: FEW }, signal }),
    enabled: may(me, "runs:read"),
    refetchInterval: EVERY,
  });
  const boxes = useQuery({
    queryKey: ["welcome", "sandboxes"],
    queryFn: ({ signal }) =>
      api.get<Schema<"SandboxList">>("/v1/sandboxes", {
        query: { state: ["Running", "Paused"], pageSize: FEW },
        signal,
      }),
    enabled: may(me, "sandboxes:read"),
    refetchInterval: EVERY,
  });
  const snapshots = useSnapshotNames(boxes.data?.items.some((box) => box.snapshotId) ?? false);
  return (
    <div className={styles.columns}>
      {chats.isEnabled && (
        <List id="chats" title={t("welcome.chats")} href="/chats">
          <Loaded
            query={chats}
            rows={3}
            isEmpty={({ items }) => !items.length}
            empty={<None text={t("welcome.noChats")} />}
          >
            {({ items }) => (
              <ul>
                {items.map((chat) => (
                  <li key={chat.id}>
                    <Link href={`/chats/${encodeURIComponent(chat.id)}`} className={styles.entry}>
                      <MessageCircle size={16} aria-hidden />
                      <bdi className={styles.name}>{chat.title || t("welcome.untitled")}</bdi>
                      {chat.state !== "idle" && (
                        <Badge tone={SESSION_TONES[chat.state]}>{t(`welcome.session.${chat.state}`)}</Badge>
                      )}
                      <Time at={chat.changed_at} />
                    </Link>
                  </li>
                ))}
              </ul>
            )}
          </Loaded>
        </List>
      )}
      {runs.isEnabled && (
        <List id="runs" title={t("welcome.runs")} href="/runs">
          <Loaded
            query={runs}
            rows={3}
            isEmpty={({ items }) => !items.length}
            empty={<None text={t("welcome.noRuns")} />}
          >
            {({ items }) => (
              <ul>
                {items.map((run) => (
                  <li key={run.id}>
                    <Link href={`/runs/${encodeURIComponent(run.id)}`} className={styles.entry}>
                      <Play size={16} aria-hidden />
                      <bdi className={styles.name}>{run.name}</bdi>
                      <Badge tone={RUN_TONES[run.state]}>{t(`welcome.run.${run.state}`)}</Badge>
                      <Time at={run.createdAt} />
                    </Link>
                  </li>
                ))}
              </ul>
            )}
          </Loaded>
        </List>
      )}
      {boxes.isEnabled && (
        <List id="boxes" title={t("welcome.sandboxes")} href="/sandboxes">
          <Loaded
            query={boxes}
            rows={3}
            isEmpty={({ items }) => !items.length}
            empty={<None text={t("welcome.noBoxes")} />}
          >
            {({ items }) => (
              <ul>
                {items.map((box) => (
                  <li key={box.id}>
                    <Link href={`/sandboxes/${encodeURIComponent(box.id)}`} className={styles.entry}>
                      <Box size={16} aria-hidden />
                      <bdi className={styles.name}>
                        {box.metadata.name || (kindOf(box) ?? originOf(box, snapshots))}
                      </bdi>
                      <span className={styles.id}>{box.id}</span>
                      <Time at={box.createdAt} />
                    </Link>
                  </li>
                ))}
              </ul>
            )}
          </Loaded>
        </List>
      )}
    </div>
  );
}

function List({ id, title, href, children }: { id: string; title: string; href: string; children: ReactNode }) {
  const { t } = useTranslation();
  return (
    <section aria-labelledby={id} className={styles.list}>
      <header>
        <h2 id={id}>{title}</h2>
        <Link href={href} aria-label={t("welcome.allOf", { what: title })}>
          {t("welcome.all")}
        </Link>
      </header>
      {children}
    </section>
  );
}

function None({ text }: { text: string }) {
  return <p className={styles.none}>{text}</p>;
}
