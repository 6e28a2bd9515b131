/** Server-sent events that resume after a lost connection. */

import { ApiError, fetchRaw, type Query } from "./client";

export interface Frame {
  id: string;
  event: string;
  data: string;
}

export type LinkState = "connecting" | "live" | "lost" | "ended";

export interface Following {
  query?: Query;
  /** Id of the last event; events are never delivered twice. */
  after?: string | number;
  signal: AbortSignal;
  onFrame: (frame: Frame) => void;
  onState?: (state: LinkState, error?: ApiError) => void;
  /** Whether the stream is over when the server closes it; otherwise the client reconnects. */
  ends?: boolean;
}

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;
/** The server sends a comment every 15 seconds; after this silence the connection counts as dead. */
const SILENCE = 40_000;

/** Follow a stream until the signal is aborted, the stream ends, or the server refuses permanently. */
export async function follow(path: string, following: Following): Promise<void> {
  const { signal, onFrame, onState } = following;
  let after = following.after;
  let pause = FIRST_PAUSE;
  while (!signal.aborted) {
    onState?.("connecting");
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener("abort", stop);
    try {
      const response = await fetchRaw("GET", path, {
        query: { ...following.query, after },
        headers: { Accept: "text/event-stream" },
        signal: attempt.signal,
      });
      onState?.("live");
      await frames(response, stop, (frame) => {
        pause = FIRST_PAUSE;
        if (frame.id) after = frame.id;
        onFrame(frame);
      });
      if (following.ends && !signal.aborted) {
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
    await sleep(pause * (0.75 + Math.random() / 2), signal);
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

async function frames(response: Response, giveUp: () => void, onFrame: (frame: Frame) => void): Promise<void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  let rest = "";
  let timer = setTimeout(giveUp, SILENCE);
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(giveUp, SILENCE);
      rest += value;
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const frame = parse(rest.slice(0, end));
        rest = rest.slice(end + 2);
        if (frame) onFrame(frame);
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Parse one frame; null for comments. */
export function parse(text: string): Frame | null {
  const frame = { id: "", event: "message", data: "" };
  let some = false;
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const name = line.slice(0, colon);
    if (name === "data") {
      frame.data += (some ? "\n" : "") + value;
      some = true;
    } else if (name === "id" || name === "event") frame[name] = value;
  }
  return some ? frame : null;
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
