/** API of recorded exchanges and conversations. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";

export type Exchange = Schema<"ExchangeSummaryResponse">;

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
  content: MessagePart[];
}
export type MessagePart = TextPart | MediaPart | ThinkingPart | CallPart | ResultPart;

export interface ChatMessage {
  role: "system" | "user" | "assistant";
  parts: MessagePart[];
}

/** The API's type, with the message content that the OpenAPI description leaves open. */
export type ExchangeDetail = Omit<Schema<"ExchangeResponse">, "messages" | "answer"> & {
  messages?: ChatMessage[];
  answer?: { id?: string; model?: string; parts: MessagePart[]; finish?: string; notes?: string[] };
};
export interface Conversation {
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
  usage: Schema<"TokenUsageResponse">;
  estimated: boolean;
  cost?: number;
  messages: ChatMessage[];
  notes: string[];
}

export const EXCHANGE_FILTERS = [
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
export type ExchangeFilter = (typeof EXCHANGE_FILTERS)[number];
export type ExchangeFilterValues = Partial<Record<ExchangeFilter, string>>;

export const EXCHANGE_OUTCOMES = ["ok", "refused", "failed", "cut", "client_gone"] as const;
const PAGE_SIZE = 50;

/** Filters from the URL; local times are sent with their time zone. */
export function exchangeFiltersFromUrl(search: URLSearchParams): ExchangeFilterValues {
  const found: ExchangeFilterValues = {};
  for (const name of EXCHANGE_FILTERS) {
    const value = search.get(name)?.trim();
    if (value) found[name] = value;
  }
  return found;
}

/** Filters as query parameters of the API. */
export function exchangeFiltersToQuery(filters: ExchangeFilterValues): Record<string, string> {
  const query: Record<string, string> = { ...filters };
  for (const name of ["since", "until"] as const) {
    const at = filters[name] ? new Date(filters[name]) : null;
    if (at && !Number.isNaN(at.getTime())) query[name] = at.toISOString();
  }
  return query;
}

export function useExchanges(filters: ExchangeFilterValues) {
  return useInfiniteQuery({
    queryKey: ["archive", "list", filters],
    queryFn: ({ pageParam, signal }) =>
      api.get<Schema<"ExchangePageResponse">>("/v1/exchanges", {
        query: { ...exchangeFiltersToQuery(filters), limit: PAGE_SIZE, cursor: pageParam },
        signal,
      }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next ?? null,
  });
}

export function useExchange(id: string) {
  return useQuery({
    queryKey: ["archive", "one", id],
    queryFn: ({ signal }) => api.get<ExchangeDetail>(`/v1/exchanges/${encodeURIComponent(id)}`, { signal }),
    // The content of an exchange never changes.
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function useConversations(sandbox: string) {
  return useQuery({
    queryKey: ["archive", "talks", sandbox],
    queryFn: ({ signal }) =>
      api.get<{ items: Conversation[] }>(`/v1/sandboxes/${encodeURIComponent(sandbox)}/conversations`, { signal }),
  });
}
