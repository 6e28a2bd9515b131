import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { ChevronRight, History } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useUrlQuery } from "@/shell/navigation/useUrlQuery";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { Badge, type Tone } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { Select } from "@/ui/controls/forms";
import { formatBytes, formatDuration, RelativeTime } from "@/ui/format/formats";
import { translateServerText } from "@/ui/format/server-text";
import { EmptyState, ErrorState, LoadingBars, QueryResult } from "@/ui/layout/query-states";
import type { McpCall } from "./api";
import styles from "./mcp.module.css";

const TONES: Record<McpCall["outcome"], Tone> = {
  ok: "good",
  tool_error: "danger",
  error: "danger",
  refused: "warning",
  input_required: "info",
  cancelled: "neutral",
};
const OUTCOMES = Object.keys(TONES);
const ORIGINS = ["http", "sandbox", "chat", "run", "grpc", "console"];
const PAGE_SIZE = 50;

/** Recent calls of one server, or of all. */
export function McpCallList({ server }: { server?: string }) {
  const { t } = useTranslation();
  const { get, set } = useUrlQuery();
  const outcome = get("outcome");
  const query = useInfiniteQuery({
    queryKey: ["mcp", "calls", server ?? "", outcome],
    queryFn: ({ pageParam, signal }) =>
      api.get<Schema<"McpCallRecordListResponse">>("/v1/mcp/calls", {
        query: { server, outcome, before: pageParam, limit: PAGE_SIZE },
        signal,
      }),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
    // Older pages do not change.
    refetchInterval: ({ state }) => (state.data && state.data.pages.length > 1 ? false : 5_000),
  });
  const calls = query.data?.pages.flatMap((page) => page.items);
  return (
    <>
      <div className={styles.row}>
        <Select
          aria-label={t("mcp.calls.outcome")}
          value={outcome}
          onChange={(value) => set({ outcome: value })}
          options={[
            { value: "", label: t("mcp.calls.all") },
            ...OUTCOMES.map((value) => ({ value, label: t(`mcp.outcomes.${value}`) })),
          ]}
        />
      </div>
      {calls === undefined ? (
        query.error ? (
          <ErrorState error={query.error} retry={() => void query.refetch()} />
        ) : (
          <LoadingBars />
        )
      ) : calls.length === 0 ? (
        <EmptyState icon={History} title={t("mcp.calls.none")}>
          {t("mcp.calls.noneAbout")}
        </EmptyState>
      ) : (
        <ul className={styles.tools} aria-label={t("mcp.tabs.calls")}>
          {calls.map((call) => (
            <li key={call.id}>
              <CallRow call={call} withServer={server === undefined} />
            </li>
          ))}
        </ul>
      )}
      {query.hasNextPage && (
        <div className={styles.row}>
          <Button busy={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
            {t("mcp.calls.older")}
          </Button>
        </div>
      )}
    </>
  );
}

function CallRow({ call, withServer }: { call: McpCall; withServer: boolean }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const origin = ORIGINS.includes(call.origin) ? t(`mcp.origins.${call.origin}`) : call.origin;
  return (
    <details className={styles.tool} open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <ChevronRight size={15} aria-hidden className={styles.arrow} />
        <code className={styles.toolName}>{withServer ? `${call.server} · ${call.target}` : call.target}</code>
        <span className={styles.toolAbout}>{[call.callerName ?? call.agent, origin].filter(Boolean).join(" · ")}</span>
        <span className={styles.callFacts}>
          <Badge tone={TONES[call.outcome]}>{t(`mcp.outcomes.${call.outcome}`)}</Badge>
          <span>{formatDuration(call.seconds)}</span>
          <RelativeTime at={call.startedAt} />
        </span>
      </summary>
      {open && <CallDetails call={call} />}
    </details>
  );
}

function CallDetails({ call }: { call: McpCall }) {
  const { t } = useTranslation();
  const query = useQuery({
    queryKey: ["mcp", "call", call.id],
    queryFn: ({ signal }) => api.get<McpCall>(`/v1/mcp/calls/${encodeURIComponent(call.id)}`, { signal }),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const links = [
    { id: call.run, path: "/runs", text: t("mcp.calls.run") },
    { id: call.session, path: "/chats", text: t("mcp.calls.chat") },
    { id: call.sandbox, path: "/sandboxes", text: t("mcp.calls.sandbox") },
  ];
  return (
    <div className={styles.toolBody}>
      {call.error && <p className={styles.wrong}>{translateServerText(call.error)}</p>}
      <p className={styles.row}>
        {links.map(
          ({ id, path, text }) =>
            id && (
              <Link key={path} href={`${path}/${encodeURIComponent(id)}`}>
                {text}
              </Link>
            ),
        )}
        {call.method !== "tools/call" && <code>{call.method}</code>}
        <span className={styles.soft}>
          {t("mcp.calls.sizes", {
            request: formatBytes(call.requestBytes),
            response: formatBytes(call.responseBytes),
          })}
        </span>
      </p>
      <QueryResult query={query} rows={2}>
        {(full) => (
          <>
            <CodeBlock
              text={indented(full.arguments)}
              label={t("mcp.calls.arguments")}
              fileName="arguments.json"
              wrap
              fold
            />
            <CodeBlock text={indented(full.result)} label={t("mcp.calls.result")} fileName="result.json" wrap fold />
          </>
        )}
      </QueryResult>
    </div>
  );
}

/** JSON with line breaks; a record that was cut is no JSON any more and stays as it is. */
function indented(text: string | null | undefined): string {
  try {
    return JSON.stringify(JSON.parse(text ?? ""), null, 2);
  } catch {
    return text ?? "";
  }
}
