/** Exchanges as they are recorded. */

import { useEffect, useState } from "react";
import { followEventStream, type StreamState } from "@/api/event-stream";
import type { Exchange, ExchangeFilterValues } from "./api";

const MAX_EXCHANGES = 200;

/** Exchanges recorded since the tail was switched on, newest first. */
export function useExchangeTail(
  on: boolean,
  after: number | null,
  matches: (exchange: Exchange) => boolean,
  filters: ExchangeFilterValues,
) {
  const [items, setItems] = useState<Exchange[]>([]);
  const [link, setLink] = useState<StreamState>("ended");
  const sandbox = filters.sandbox;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the start position is read only once.
  useEffect(() => {
    setItems([]);
    if (!on) return;
    const stop = new AbortController();
    let waiting: Exchange[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      timer = undefined;
      const newExchanges = waiting.toReversed();
      waiting = [];
      if (!stop.signal.aborted) setItems((current) => [...newExchanges, ...current].slice(0, MAX_EXCHANGES));
    };
    void followEventStream("/v1/exchanges/events", {
      query: { sandbox },
      after: after ?? undefined,
      signal: stop.signal,
      onState: setLink,
      onEvent: ({ data }) => {
        const exchange = JSON.parse(data) as Exchange;
        if (!matches(exchange)) return;
        waiting.push(exchange);
        timer ??= setTimeout(show, 250);
      },
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [on, JSON.stringify(filters)]);
  return { items, link };
}

/** Predicate for the filters that can be checked without the content. */
export function exchangeMatcher(filters: ExchangeFilterValues): (exchange: Exchange) => boolean {
  return (exchange) =>
    (!filters.sandbox || exchange.sandbox === filters.sandbox) &&
    (!filters.run || exchange.run === filters.run) &&
    (!filters.session || exchange.session === filters.session) &&
    (!filters.user || exchange.user === filters.user) &&
    (!filters.key || exchange.key === filters.key) &&
    (!filters.provider || exchange.provider === filters.provider) &&
    (!filters.conversation || exchange.conversation === filters.conversation) &&
    (!filters.outcome || exchange.outcome === filters.outcome) &&
    (!filters.status || String(exchange.status) === filters.status) &&
    (!filters.model || exchange.model === filters.model || exchange.providerModel === filters.model);
}
