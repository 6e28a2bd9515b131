/** Follows one session: pages of what was, then a WebSocket, or server-sent events where there can be none. */

import { ApiError, api } from "@/api/client";
import type { SessionEvent } from "@/api/session-events";
import { openSocket } from "@/api/socket";
import { follow, type LinkState, sleep } from "@/api/streams";

/** What a follower needs of whoever keeps the view. */
export interface Keeper {
  /** The number of the last event that it has, those it was just given included. */
  last(): number;
  take(events: readonly SessionEvent[]): void;
  /** All that there was has been given. Called after each reconnection, too; what it does is waited for. */
  caughtUp(signal: AbortSignal): Promise<void>;
  link(state: LinkState): void;
  /** There is nothing to follow: it is gone, or somebody else's. */
  refused(error: ApiError): void;
}

export const PAGE = 1000;
export const FIRST_PAUSE = 500;
export const LONGEST_PAUSE = 5_000;
/** The socket is asked whether it lives after so long a silence, and given up after so much more. */
export const SILENCE = 20_000;
export const PATIENCE = 10_000;
const OPENING = 10_000;
/** Connections that were never opened before sockets are given up for server-sent events. */
const FAILURES = 2;

export class Follower {
  private readonly path: string;
  private readonly keeper: Keeper;
  private readonly whole = new AbortController();
  private failures = 0;
  private state: LinkState = "connecting";
  /** Ends the pause before the next try. */
  private hurry: (() => void) | null = null;
  /** Asks the open connection whether it lives. */
  private probe: (() => void) | null = null;

  constructor(id: string, keeper: Keeper) {
    this.path = `/v1/sessions/${encodeURIComponent(id)}`;
    this.keeper = keeper;
  }

  /** What was lost stays lost until it is live again, so that nothing flickers while it is tried. */
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
        if (this.failures < FAILURES) await this.socket();
        else {
          await this.stream();
          // Once more with a socket: what was in its way may be gone.
          this.failures = FAILURES - 1;
        }
      } catch (error) {
        if (this.signal.aborted) return;
        if (isFinal(error)) {
          this.link("ended");
          this.keeper.refused(error);
          this.stop();
          return;
        }
        if (error instanceof ApiError && error.retryAfter) pause = Math.max(pause, error.retryAfter * 1000);
      }
      if (this.signal.aborted) return;
      // A connection that held is worth a quick return.
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
        query: { after: this.keeper.last(), limit: PAGE },
        headers: { Accept: "application/json" },
        signal: this.signal,
      });
      this.keeper.take(page.items);
      more = page.items.length >= PAGE;
    }
  }

  private async socket(): Promise<void> {
    const socket = await openSocket(`${this.path}/ws`, { after: this.keeper.last() });
    if (this.signal.aborted) return socket.close();
    let opened = false;
    let timer = setTimeout(() => socket.close(), OPENING);
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(ask, SILENCE);
    };
    const ask = () => {
      if (socket.readyState !== WebSocket.OPEN) return;
      socket.send('{"type":"ping"}');
      clearTimeout(timer);
      timer = setTimeout(lost, PATIENCE);
    };
    let lost = () => socket.close();
    try {
      await new Promise<void>((resolve) => {
        // A dead connection may take minutes to close: nobody waits for that.
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
          const told = typeof data === "string" ? event(data) : null;
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

  /** Ends when the connection is lost for the first time, so that pages fill the gap and a socket is tried again. */
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
          const told = event(frame.data);
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

/** Whether asking again would be answered the same. */
export function isFinal(error: unknown): error is ApiError {
  return error instanceof ApiError && error.status >= 400 && error.status < 500 && ![408, 429].includes(error.status);
}

/** An event, if it is one: other things come over the socket, too. */
export function event(text: string): SessionEvent | null {
  try {
    const told = JSON.parse(text) as SessionEvent | null;
    return typeof told?.number === "number" && typeof told.type === "string" && told.data ? told : null;
  } catch {
    return null;
  }
}
