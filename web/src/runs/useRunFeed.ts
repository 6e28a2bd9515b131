/** Follows a run's events. */

import { useEffect, useState } from "react";
import { createStore, useStore } from "zustand";
import type { ApiError } from "@/api/client";
import { followEventStream, type StreamState } from "@/api/event-stream";
import { applyRunEvents, EMPTY_FEED, type RunEvent, type RunFeed } from "./run-feed";

export interface RunFeedState {
  feed: RunFeed;
  link: StreamState;
  error: ApiError | null;
}

/** Milliseconds for which events are batched: a busy agent emits many. */
const BATCH_MS = 60;

/** Follow a run's events from the start while a component is mounted; null follows none. */
export function useRunFeed(run: string | null): RunFeedState {
  const [store] = useState(() =>
    createStore<RunFeedState>(() => ({ feed: EMPTY_FEED, link: "connecting", error: null })),
  );
  useEffect(() => {
    const stop = new AbortController();
    let waiting: RunEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      timer = undefined;
      const events = waiting;
      waiting = [];
      if (!stop.signal.aborted) store.setState(({ feed }) => ({ feed: applyRunEvents(feed, events) }));
    };
    store.setState({ feed: EMPTY_FEED, link: "connecting", error: null });
    if (run === null) return;
    void followEventStream(`/v1/runs/${encodeURIComponent(run)}/events`, {
      signal: stop.signal,
      endsOnClose: true,
      onEvent: ({ data }) => {
        waiting.push(JSON.parse(data) as RunEvent);
        timer ??= setTimeout(show, BATCH_MS);
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
