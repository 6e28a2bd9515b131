/** Server-sent events that resume after a lost connection. */

import { ApiError, fetchRaw, type QueryParams } from "./client";

export interface ServerSentEvent {
  id: string;
  event: string;
  data: string;
}

export type StreamState = "connecting" | "live" | "lost" | "ended";

export interface EventStreamOptions {
  query?: QueryParams;
  /** Id of the last event; events are never delivered twice. */
  after?: string | number;
  signal: AbortSignal;
  onEvent: (event: ServerSentEvent) => void;
  onState?: (state: StreamState, error?: ApiError) => void;
  /** Whether the stream is over when the server closes it; otherwise the client reconnects. */
  endsOnClose?: boolean;
}

const MIN_RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 10_000;
/** The server sends a comment every 15 seconds; after this silence the connection counts as dead. */
const SILENCE_TIMEOUT_MS = 40_000;

/** Follow a stream until the signal is aborted, the stream ends, or the server refuses permanently. */
export async function followEventStream(path: string, options: EventStreamOptions): Promise<void> {
  const { signal, onEvent, onState } = options;
  let after = options.after;
  let retryDelay = MIN_RETRY_DELAY_MS;
  while (!signal.aborted) {
    onState?.("connecting");
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener("abort", stop);
    try {
      const response = await fetchRaw("GET", path, {
        query: { ...options.query, after },
        headers: { Accept: "text/event-stream" },
        signal: attempt.signal,
      });
      onState?.("live");
      await readServerSentEvents(response, stop, (event) => {
        retryDelay = MIN_RETRY_DELAY_MS;
        if (event.id) after = event.id;
        onEvent(event);
      });
      if (options.endsOnClose && !signal.aborted) {
        onState?.("ended");
        return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
        onState?.("ended", error);
        return;
      }
    } finally {
      signal.removeEventListener("abort", stop);
      attempt.abort();
    }
    if (signal.aborted) return;
    onState?.("lost");
    await sleep(retryDelay * (0.75 + Math.random() / 2), signal);
    retryDelay = Math.min(retryDelay * 2, MAX_RETRY_DELAY_MS);
  }
}

async function readServerSentEvents(
  response: Response,
  onSilence: () => void,
  onEvent: (event: ServerSentEvent) => void,
): Promise<void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  let rest = "";
  let timer = setTimeout(onSilence, SILENCE_TIMEOUT_MS);
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(onSilence, SILENCE_TIMEOUT_MS);
      rest += value;
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const event = parseServerSentEvent(rest.slice(0, end));
        rest = rest.slice(end + 2);
        if (event) onEvent(event);
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Parse one frame; null for comments. */
export function parseServerSentEvent(text: string): ServerSentEvent | null {
  const event = { id: "", event: "message", data: "" };
  let hasData = false;
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const name = line.slice(0, colon);
    if (name === "data") {
      event.data += (hasData ? "\n" : "") + value;
      hasData = true;
    } else if (name === "id" || name === "event") event[name] = value;
  }
  return hasData ? event : null;
}

/** Sleep until the time is over or the signal is aborted. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, milliseconds);
    function done() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    }
    signal?.addEventListener("abort", done);
  });
}
