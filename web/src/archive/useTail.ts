/** Exchanges as they are written. */

import { useEffect, useState } from "react";
import { follow, type LinkState } from "@/api/streams";
import type { Exchange, Filters } from "./asking";

const MOST = 200;

/** Those that came since it was switched on, newest first. */
export function useTail(on: boolean, after: number | null, fits: (exchange: Exchange) => boolean, filters: Filters) {
  const [items, setItems] = useState<Exchange[]>([]);
  const [link, setLink] = useState<LinkState>("ended");
  const sandbox = filters.sandbox;
  // biome-ignore lint/correctness/useExhaustiveDependencies: what was there when it began is only asked for then.
  useEffect(() => {
    setItems([]);
    if (!on) return;
    const stop = new AbortController();
    let waiting: Exchange[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      timer = undefined;
      const fresh = waiting.toReversed();
      waiting = [];
      if (!stop.signal.aborted) setItems((now) => [...fresh, ...now].slice(0, MOST));
    };
    void follow("/v1/exchanges/events", {
      query: { sandbox },
      after: after ?? undefined,
      signal: stop.signal,
      onState: setLink,
      onFrame: ({ data }) => {
        const exchange = JSON.parse(data) as Exchange;
        if (!fits(exchange)) return;
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

/** Whether an exchange is one that the filters mean, as far as can be told without its words. */
export function fitting(filters: Filters): (exchange: Exchange) => boolean {
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
