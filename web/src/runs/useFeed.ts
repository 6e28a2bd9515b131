/** A run that is being followed. */

import { useEffect, useState } from "react";
import { createStore, useStore } from "zustand";
import type { ApiError } from "@/api/client";
import { follow, type LinkState } from "@/api/streams";
import { type Feed, NOTHING, type RunEvent, tell } from "./feed";

export interface FeedLink {
  feed: Feed;
  link: LinkState;
  error: ApiError | null;
}

/** Milliseconds for which events are gathered before they are shown: a busy agent tells many at once. */
const GATHER = 60;

/** Follow a run's events from its beginning for as long as a component shows it. */
export function useFeed(run: string): FeedLink {
  const [store] = useState(() => createStore<FeedLink>(() => ({ feed: NOTHING, link: "connecting", error: null })));
  useEffect(() => {
    const stop = new AbortController();
    let waiting: RunEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      timer = undefined;
      const events = waiting;
      waiting = [];
      if (!stop.signal.aborted) store.setState(({ feed }) => ({ feed: tell(feed, events) }));
    };
    store.setState({ feed: NOTHING, link: "connecting", error: null });
    void follow(`/v1/runs/${encodeURIComponent(run)}/events`, {
      signal: stop.signal,
      ends: true,
      onFrame: ({ data }) => {
        waiting.push(JSON.parse(data) as RunEvent);
        timer ??= setTimeout(show, GATHER);
      },
      onState: (link, error) => store.setState({ link, error: error ?? null }),
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [run, store]);
  return useStore(store);
}
