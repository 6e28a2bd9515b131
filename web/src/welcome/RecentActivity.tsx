import { useQuery } from "@tanstack/react-query";
import { Box, MessageCircle, Play } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { sandboxKind, sandboxOrigin } from "@/sandboxes/sandbox-properties";
import { useSnapshotNames } from "@/sandboxes/useSnapshotNames";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { Badge, type Tone } from "@/ui/controls/Badge";
import { RelativeTime } from "@/ui/format/formats";
import { QueryResult } from "@/ui/layout/query-states";
import styles from "./WelcomePage.module.css";

const MAX_ROWS = 6;
const POLL_MS = 5_000;
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

export function useRecentChats() {
  const me = useCurrentUser().data;
  return useQuery({
    queryKey: ["welcome", "chats"],
    queryFn: ({ signal }) =>
      api.get<Schema<"SessionListResponse">>("/v1/sessions", { query: { pageSize: MAX_ROWS }, signal }),
    enabled: hasScope(me, "sessions:read"),
    refetchInterval: POLL_MS,
  });
}

/** Active and recent work. Empty sections are hidden. */
export function RecentActivity() {
  const { t } = useTranslation();
  const me = useCurrentUser().data;
  const chats = useRecentChats();
  const runs = useQuery({
    queryKey: ["welcome", "runs"],
    queryFn: ({ signal }) => api.get<Schema<"RunListResponse">>("/v1/runs", { query: { pageSize: MAX_ROWS }, signal }),
    enabled: hasScope(me, "runs:read"),
    refetchInterval: POLL_MS,
  });
  const sandboxes = useQuery({
    queryKey: ["welcome", "sandboxes"],
    queryFn: ({ signal }) =>
      api.get<Schema<"SandboxListResponse">>("/v1/sandboxes", {
        query: { state: ["Running", "Paused"], pageSize: MAX_ROWS },
        signal,
      }),
    enabled: hasScope(me, "sandboxes:read"),
    refetchInterval: POLL_MS,
  });
  const snapshots = useSnapshotNames(sandboxes.data?.items.some((sandbox) => sandbox.snapshotId) ?? false);
  return (
    <div className={styles.columns}>
      {chats.isEnabled && (
        <ActivityList id="chats" title={t("welcome.chats")} href="/chats">
          <QueryResult
            query={chats}
            rows={3}
            isEmpty={({ items }) => !items.length}
            empty={<EmptyLine text={t("welcome.noChats")} />}
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
                      <RelativeTime at={chat.changed_at} />
                    </Link>
                  </li>
                ))}
              </ul>
            )}
          </QueryResult>
        </ActivityList>
      )}
      {runs.isEnabled && (
        <ActivityList id="runs" title={t("welcome.runs")} href="/runs">
          <QueryResult
            query={runs}
            rows={3}
            isEmpty={({ items }) => !items.length}
            empty={<EmptyLine text={t("welcome.noRuns")} />}
          >
            {({ items }) => (
              <ul>
                {items.map((run) => (
                  <li key={run.id}>
                    <Link href={`/runs/${encodeURIComponent(run.id)}`} className={styles.entry}>
                      <Play size={16} aria-hidden />
                      <bdi className={styles.name}>{run.name}</bdi>
                      <Badge tone={RUN_TONES[run.state]}>{t(`welcome.run.${run.state}`)}</Badge>
                      <RelativeTime at={run.createdAt} />
                    </Link>
                  </li>
                ))}
              </ul>
            )}
          </QueryResult>
        </ActivityList>
      )}
      {sandboxes.isEnabled && (
        <ActivityList id="sandboxes" title={t("welcome.sandboxes")} href="/sandboxes">
          <QueryResult
            query={sandboxes}
            rows={3}
            isEmpty={({ items }) => !items.length}
            empty={<EmptyLine text={t("welcome.noSandboxes")} />}
          >
            {({ items }) => (
              <ul>
                {items.map((sandbox) => (
                  <li key={sandbox.id}>
                    <Link href={`/sandboxes/${encodeURIComponent(sandbox.id)}`} className={styles.entry}>
                      <Box size={16} aria-hidden />
                      <bdi className={styles.name}>
                        {sandbox.metadata.name || (sandboxKind(sandbox) ?? sandboxOrigin(sandbox, snapshots))}
                      </bdi>
                      <span className={styles.id}>{sandbox.id}</span>
                      <RelativeTime at={sandbox.createdAt} />
                    </Link>
                  </li>
                ))}
              </ul>
            )}
          </QueryResult>
        </ActivityList>
      )}
    </div>
  );
}

function ActivityList({ id, title, href, children }: { id: string; title: string; href: string; children: ReactNode }) {
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

function EmptyLine({ text }: { text: string }) {
  return <p className={styles.none}>{text}</p>;
}
