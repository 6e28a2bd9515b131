/** Session list and full-text search. */

import { keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";

export type SessionHit = Schema<"MessageHit">;

const PAGE_SIZE = 50;
const POLL_MS = 10_000;
const listeners = new Set<() => void>();

/** Refresh the lists after a change. */
export function refreshSessionList(): void {
  for (const listener of listeners) listener();
}

/** Sessions by last change, filtered by title; `fetchNextPage` for more. */
export function useSessions(query = "") {
  const queries = useQueryClient();
  useEffect(() => {
    const ask = () => void queries.invalidateQueries({ queryKey: ["session", "list"] });
    listeners.add(ask);
    return () => void listeners.delete(ask);
  }, [queries]);
  const q = query.trim();
  return useInfiniteQuery({
    queryKey: ["session", "list", q],
    queryFn: ({ pageParam: before, signal }) =>
      api.get<Schema<"SessionListResponse">>("/v1/sessions", { query: { q, pageSize: PAGE_SIZE, before }, signal }),
    initialPageParam: "",
    getNextPageParam: (page) => (page.pagination.hasNextPage ? page.next : undefined),
    select: ({ pages }) => uniqueSessions(pages.flatMap(({ items }) => items)),
    refetchInterval: POLL_MS,
    placeholderData: keepPreviousData,
  });
}

/** A session that changed between two page requests may be in both. */
function uniqueSessions(sessions: Schema<"Session">[]): Schema<"Session">[] {
  const seen = new Set<string>();
  return sessions.filter(({ id }) => !seen.has(id) && seen.add(id));
}

/** Search messages and tool results of all sessions; starts at two characters. */
export function useSessionSearch(query: string) {
  const q = query.trim();
  return useQuery({
    queryKey: ["session", "search", q],
    queryFn: ({ signal }) =>
      api.get<Schema<"SessionSearchResponse">>("/v1/sessions/search", { query: { q, pageSize: PAGE_SIZE }, signal }),
    select: ({ items }) => items,
    // Two Latin letters say little; one Chinese character may be a word.
    enabled: q.length >= 2 || /\p{Script=Han}/u.test(q),
    placeholderData: keepPreviousData,
  });
}
