/** Follows one session: pages of past events, then a WebSocket, or server-sent events as a fallback. */

import { ApiError, api } from "@/api/client";
import type { SessionEvent } from "@/api/session-events";
import { openSocket } from "@/api/socket";
import { follow, type LinkState, sleep } from "@/api/streams";

/** Receives the events of a follower. */
export interface FollowerTarget {
  /** Number of the last received event. */
  last(): number;
  take(events: readonly SessionEvent[]): void;
  /** Called after all past events were delivered, also after each reconnect; awaited. */
  caughtUp(signal: AbortSignal): Promise<void>;
  link(state: LinkState): void;
  /** The session cannot be followed: it is deleted or belongs to another user. */
  refused(error: ApiError): void;
}

export const PAGE_SIZE = 1000;
export const FIRST_PAUSE = 500;
export const LONGEST_PAUSE = 5_000;
/** After this silence the socket is pinged, and closed if no reply follows. */
export const SILENCE_MS = 20_000;
export const PONG_TIMEOUT = 10_000;
const OPEN_TIMEOUT = 10_000;
/** Failed connection attempts before falling back to server-sent events. */
const MAX_SOCKET_FAILURES = 2;

export class SessionFollower {
  private readonly path: string;
  private readonly keeper: FollowerTarget;
  private readonly whole = new AbortController();
  private failures = 0;
  private state: LinkState = "connecting";
  /** Ends the pause before the next attempt. */
  private hurry: (() => void) | null = null;
  /** Pings the open connection. */
  private probe: (() => void) | null = null;

  constructor(id: string, keeper: FollowerTarget) {
    this.path = `/v1/sessions/${encodeURIComponent(id)}`;
    this.keeper = keeper;
  }

  /** A lost connection stays "lost" until it is live again, so that the state does not flicker. */
  start(): void {
    void this.run();
    window.addEventListener("online", this.wake);
    document.addEventListener("visibilitychange", this.wake);
  }

  stop(): void {
    this.whole.abort();
    window.removeEventListener("online", this.wake);
    document.removeEventListener("visibilitychange", this.wake);
  }

  private readonly wake = (): void => {
    if (document.visibilityState === "hidden") return;
    this.hurry?.();
    this.probe?.();
  };

  private get signal(): AbortSignal {
    return this.whole.signal;
  }

  private link(state: LinkState): void {
    if (this.signal.aborted || state === this.state) return;
    this.state = state;
    this.keeper.link(state);
  }

  private async run(): Promise<void> {
    let pause = FIRST_PAUSE;
    while (!this.signal.aborted) {
      const began = Date.now();
      try {
        await this.pages();
        await this.keeper.caughtUp(this.signal);
        if (this.failures < MAX_SOCKET_FAILURES) await this.socket();
        else {
          await this.stream();
          // Try a socket again: the obstacle may be gone.
          this.failures = MAX_SOCKET_FAILURES - 1;
        }
      } catch (error) {
        if (this.signal.aborted) return;
        if (isFinalError(error)) {
          this.link("ended");
          this.keeper.refused(error);
          this.stop();
          return;
        }
        if (error instanceof ApiError && error.retryAfter) pause = Math.max(pause, error.retryAfter * 1000);
      }
      if (this.signal.aborted) return;
      // Reconnect at once after a connection that was stable.
      if (Date.now() - began > LONGEST_PAUSE) pause = FIRST_PAUSE;
      this.link("lost");
      await this.rest(pause * (0.75 + Math.random() / 2));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }

  private async rest(milliseconds: number): Promise<void> {
    const early = new AbortController();
    const end = () => early.abort();
    this.hurry = end;
    this.signal.addEventListener("abort", end);
    await sleep(milliseconds, early.signal);
    this.signal.removeEventListener("abort", end);
    this.hurry = null;
  }

  private async pages(): Promise<void> {
    for (let more = true; more && !this.signal.aborted; ) {
      const page = await api.get<{ items: SessionEvent[] }>(`${this.path}/events`, {
        query: { after: this.keeper.last(), limit: PAGE_SIZE },
        headers: { Accept: "application/json" },
        signal: this.signal,
      });
      this.keeper.take(page.items);
      more = page.items.length >= PAGE_SIZE;
    }
  }

  private async socket(): Promise<void> {
    const socket = await openSocket(`${this.path}/ws`, { after: this.keeper.last() });
    if (this.signal.aborted) return socket.close();
    let opened = false;
    let timer = setTimeout(() => socket.close(), OPEN_TIMEOUT);
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(ask, SILENCE_MS);
    };
    const ask = () => {
      if (socket.readyState !== WebSocket.OPEN) return;
      socket.send('{"type":"ping"}');
      clearTimeout(timer);
      timer = setTimeout(lost, PONG_TIMEOUT);
    };
    let lost = () => socket.close();
    try {
      await new Promise<void>((resolve) => {
        // A dead connection may take minutes to close; do not wait for it.
        lost = () => {
          socket.close();
          resolve();
        };
        this.signal.addEventListener("abort", lost);
        socket.onopen = () => {
          opened = true;
          this.failures = 0;
          this.probe = ask;
          this.link("live");
          heard();
        };
        socket.onmessage = ({ data }) => {
          heard();
          const told = typeof data === "string" ? parseSessionEvent(data) : null;
          if (told) this.keeper.take([told]);
        };
        socket.onclose = () => resolve();
      });
    } finally {
      clearTimeout(timer);
      this.signal.removeEventListener("abort", lost);
      this.probe = null;
      socket.onopen = socket.onmessage = socket.onclose = null;
    }
    if (!opened && !this.signal.aborted) this.failures += 1;
  }

  /** Ends at the first lost connection, so that pages fill the gap and a socket is tried again. */
  private async stream(): Promise<void> {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    this.signal.addEventListener("abort", stop);
    let refusal: ApiError | undefined;
    try {
      await follow(`${this.path}/events`, {
        after: this.keeper.last(),
        signal: attempt.signal,
        onFrame: (frame) => {
          const told = parseSessionEvent(frame.data);
          if (told) this.keeper.take([told]);
        },
        onState: (state, error) => {
          refusal = error;
          if (state === "live") this.link("live");
          if (state === "lost") stop();
        },
      });
    } finally {
      this.signal.removeEventListener("abort", stop);
    }
    if (refusal) throw refusal;
  }
}

/** Whether a retry would get the same answer. */
export function isFinalError(error: unknown): error is ApiError {
  return error instanceof ApiError && error.status >= 400 && error.status < 500 && ![408, 429].includes(error.status);
}

/** Parse an event; null for other socket messages. */
export function parseSessionEvent(text: string): SessionEvent | null {
  try {
    const told = JSON.parse(text) as SessionEvent | null;
    return typeof told?.number === "number" && typeof told.type === "string" && told.data ? told : null;
  } catch {
    return null;
  }
}
