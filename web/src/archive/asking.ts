/** What is asked of the server about exchanges with models. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";

export type Exchange = Schema<"ExchangeSaid">;

export interface TextPart {
  type: "text" | "refusal";
  text: string;
}
export interface MediaPart {
  type: "media";
  kind: "image" | "document" | "audio";
  mediaType?: string;
  data?: string;
  url?: string;
  name?: string;
}
export interface ThinkingPart {
  type: "thinking";
  text?: string;
  redacted?: string;
}
export interface CallPart {
  type: "toolCall";
  id: string;
  name: string;
  arguments: string;
}
export interface ResultPart {
  type: "toolResult";
  callId: string;
  name?: string;
  isError?: boolean;
  content: Part[];
}
export type Part = TextPart | MediaPart | ThinkingPart | CallPart | ResultPart;

export interface ChatMessage {
  role: "system" | "user" | "assistant";
  parts: Part[];
}

/** As the description of the API has them, but for what is said, which it leaves open. */
export type WholeExchange = Omit<Schema<"ExchangeShown">, "messages" | "answer"> & {
  messages?: ChatMessage[];
  answer?: { id?: string; model?: string; parts: Part[]; finish?: string; notes?: string[] };
};
export interface Talk {
  id: string;
  number: number;
  kind: "main" | "subagent" | "branch" | "side";
  parent?: string;
  conversation?: string;
  at: string;
  lastAt: string;
  models: string[];
  turns: number;
  exchanges: string[];
  usage: Schema<"UsageSaid">;
  estimated: boolean;
  cost?: number;
  messages: ChatMessage[];
  notes: string[];
}

export const FILTERS = [
  "text",
  "model",
  "outcome",
  "status",
  "sandbox",
  "run",
  "session",
  "provider",
  "user",
  "key",
  "conversation",
  "since",
  "until",
] as const;
export type Filter = (typeof FILTERS)[number];
export type Filters = Partial<Record<Filter, string>>;

export const OUTCOMES = ["ok", "refused", "failed", "cut", "client_gone"] as const;
const PAGE = 50;

/** The filters of an address; a local time is told to the server with its zone. */
export function filtersOf(search: URLSearchParams): Filters {
  const found: Filters = {};
  for (const name of FILTERS) {
    const value = search.get(name)?.trim();
    if (value) found[name] = value;
  }
  return found;
}

/** Filters as the server takes them. */
export function asked(filters: Filters): Record<string, string> {
  const query: Record<string, string> = { ...filters };
  for (const name of ["since", "until"] as const) {
    const at = filters[name] ? new Date(filters[name]) : null;
    if (at && !Number.isNaN(at.getTime())) query[name] = at.toISOString();
  }
  return query;
}

export function useExchanges(filters: Filters) {
  return useInfiniteQuery({
    queryKey: ["archive", "list", filters],
    queryFn: ({ pageParam, signal }) =>
      api.get<Schema<"ExchangePage">>("/v1/exchanges", {
        query: { ...asked(filters), limit: PAGE, cursor: pageParam },
        signal,
      }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next ?? null,
  });
}

export function useExchange(id: string) {
  return useQuery({
    queryKey: ["archive", "one", id],
    queryFn: ({ signal }) => api.get<WholeExchange>(`/v1/exchanges/${encodeURIComponent(id)}`, { signal }),
    // What was said does not change any more.
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function useTalks(sandbox: string) {
  return useQuery({
    queryKey: ["archive", "talks", sandbox],
    queryFn: ({ signal }) =>
      api.get<{ items: Talk[] }>(`/v1/sandboxes/${encodeURIComponent(sandbox)}/conversations`, { signal }),
  });
}
