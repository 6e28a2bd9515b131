/** The list of sessions, and the search in all of them. */

import { keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";

export type SessionHit = Schema<"Hit">;

const PAGE = 50;
const EVERY = 10_000;
const listeners = new Set<() => void>();

/** Something has changed that the list shows. */
export function listChanged(): void {
  for (const listener of listeners) listener();
}

/** Sessions, those that changed last first, with what is asked for in the title; `fetchNextPage` for more. */
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
      api.get<Schema<"SessionList">>("/v1/sessions", { query: { q, pageSize: PAGE, before }, signal }),
    initialPageParam: "",
    getNextPageParam: (page) => (page.pagination.hasNextPage ? page.next : undefined),
    select: ({ pages }) => unique(pages.flatMap(({ items }) => items)),
    refetchInterval: EVERY,
    placeholderData: keepPreviousData,
  });
}

/** One that changed while pages were asked for may be in two of them. */
function unique(sessions: Schema<"Session">[]): Schema<"Session">[] {
  const seen = new Set<string>();
  return sessions.filter(({ id }) => !seen.has(id) && seen.add(id));
}

/** What was said or answered by tools, in all sessions; nothing is asked for before there are two letters. */
export function useSessionSearch(query: string) {
  const q = query.trim();
  return useQuery({
    queryKey: ["session", "search", q],
    queryFn: ({ signal }) =>
      api.get<Schema<"HitList">>("/v1/sessions/search", { query: { q, pageSize: PAGE }, signal }),
    select: ({ items }) => items,
    // Two letters of Latin script say little; one sign of Chinese may be a word.
    enabled: q.length >= 2 || /\p{Script=Han}/u.test(q),
    placeholderData: keepPreviousData,
  });
}
