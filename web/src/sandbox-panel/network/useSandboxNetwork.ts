/** Network policy and connections of a sandbox, live. */

import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { ApiError, api } from "@/api/client";
import { followEventStream, type StreamState } from "@/api/event-stream";
import type { Schema } from "@/api/types";
import { useServerConnection } from "@/shell/status/server-connection";
import { sandboxApiPath } from "../sandbox-queries";
import { findLastEventNumber } from "./last-event-number";

export type SandboxNetwork = Schema<"SandboxNetworkResponse">;
export type ConnectionFilter = "all" | "denied" | "open";

export const CONNECTIONS_PER_PAGE = 200;
export const MAX_CONNECTIONS = 1_000;
/** Open connections have no events until they end, so that their bytes are polled. */
const POLL_MS = 3_000;
const POLICY_POLL_MS = 15_000;
/** Least time between refetches for events; a sandbox can cause 50 per second. */
const MIN_REFETCH_MS = 1_000;

export function networkQueryKey(id: string) {
  return ["sandboxPanel", id, "network"];
}

function connectionsQueryKey(id: string) {
  return ["sandboxPanel", id, "connections"];
}

/** Whether another request would be refused too. */
function isRefused(error: unknown): boolean {
  return error instanceof ApiError && error.status >= 400 && error.status < 500;
}

export function useNetworkPolicy(id: string, active: boolean) {
  return useQuery({
    queryKey: networkQueryKey(id),
    queryFn: ({ signal }) => api.get<SandboxNetwork>(`${sandboxApiPath(id)}/network`, { signal }),
    enabled: active,
    refetchInterval: (state) => (isRefused(state.state.error) ? false : POLICY_POLL_MS),
  });
}

/** The latest connections, newest first. */
export function useConnections(id: string, filter: ConnectionFilter, limit: number, active: boolean) {
  return useQuery({
    queryKey: [...connectionsQueryKey(id), filter, limit],
    queryFn: ({ signal }) =>
      api.get<Schema<"ConnectionListResponse">>(`${sandboxApiPath(id)}/connections`, {
        query: { limit, decision: filter === "denied" ? "denied" : undefined, open: filter === "open" || undefined },
        signal,
      }),
    enabled: active,
    placeholderData: keepPreviousData,
    // Long lists are polled less often.
    refetchInterval: (state) => (isRefused(state.state.error) ? false : (POLL_MS * limit) / CONNECTIONS_PER_PAGE),
  });
}

/** Refetch when the sandbox's event stream reports a connection or a changed policy. Returns the stream's state. */
export function useNetworkEvents(id: string, active: boolean): StreamState {
  const queries = useQueryClient();
  const [state, setState] = useState<StreamState>("connecting");
  const resumed = useServerConnection((connection) => connection.resumed);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `resumed` retries a refused request.
  useEffect(() => {
    if (!active) return;
    const stop = new AbortController();
    const path = `${sandboxApiPath(id)}/events`;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let lastRefetch = Number.NEGATIVE_INFINITY;
    const refetchSoon = () => {
      timer ??= setTimeout(
        () => {
          timer = undefined;
          lastRefetch = performance.now();
          void queries.invalidateQueries({ queryKey: connectionsQueryKey(id) });
        },
        Math.max(50, lastRefetch + MIN_REFETCH_MS - performance.now()),
      );
    };
    const readNext = async (after: number) => {
      const page = await api.get<Schema<"EventPageResponse">>(path, {
        query: { after, limit: 1 },
        headers: { Accept: "application/json" },
        signal: stop.signal,
      });
      return page.items[0]?.number ?? null;
    };
    const follow = async () => {
      // Without the end, past events are read again, which is only slower.
      const after = await findLastEventNumber(readNext).catch(() => 0);
      if (stop.signal.aborted) return;
      await followEventStream(path, {
        after,
        signal: stop.signal,
        endsOnClose: true,
        onState: setState,
        onEvent: ({ event }) => {
          if (event === "network.connection") refetchSoon();
          else if (event === "network.changed") void queries.invalidateQueries({ queryKey: networkQueryKey(id) });
        },
      });
    };
    void follow();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [id, active, queries, resumed]);
  return state;
}
