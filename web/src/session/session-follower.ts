/** Follows one session: pages of past events, then a WebSocket, or server-sent events as a fallback. */

import { ApiError, api } from "@/api/client";
import { followEventStream, type StreamState, sleep } from "@/api/event-stream";
import { openSocket } from "@/api/open-socket";
import type { SessionEvent } from "@/api/session-events";

/** Receives the events of a follower. */
export interface FollowerTarget {
  /** Number of the last received event. */
  lastEventNumber(): number;
  addEvents(events: readonly SessionEvent[]): void;
  /** Called after all past events were delivered, also after each reconnect; awaited. */
  onCaughtUp(signal: AbortSignal): Promise<void>;
  onStateChange(state: StreamState): void;
  /** The session cannot be followed: it is deleted or belongs to another user. */
  onRefused(error: ApiError): void;
}

export const EVENT_PAGE_SIZE = 1000;
export const MIN_RETRY_DELAY_MS = 500;
export const MAX_RETRY_DELAY_MS = 5_000;
/** After this silence the socket is pinged, and closed if no reply follows. */
export const SILENCE_TIMEOUT_MS = 20_000;
export const PONG_TIMEOUT = 10_000;
const OPEN_TIMEOUT = 10_000;
/** Failed connection attempts before falling back to server-sent events. */
const MAX_SOCKET_FAILURES = 2;

export class SessionFollower {
  private readonly path: string;
  private readonly target: FollowerTarget;
  private readonly stopController = new AbortController();
  private failures = 0;
  private state: StreamState = "connecting";
  /** Ends the pause before the next attempt. */
  private endPause: (() => void) | null = null;
  /** Pings the open connection. */
  private sendPing: (() => void) | null = null;

  constructor(id: string, target: FollowerTarget) {
    this.path = `/v1/sessions/${encodeURIComponent(id)}`;
    this.target = target;
  }

  /** A lost connection stays "lost" until it is live again, so that the state does not flicker. */
  start(): void {
    void this.run();
    window.addEventListener("online", this.reconnectNow);
    document.addEventListener("visibilitychange", this.reconnectNow);
  }

  stop(): void {
    this.stopController.abort();
    window.removeEventListener("online", this.reconnectNow);
    document.removeEventListener("visibilitychange", this.reconnectNow);
  }

  private readonly reconnectNow = (): void => {
    if (document.visibilityState === "hidden") return;
    this.endPause?.();
    this.sendPing?.();
  };

  private get signal(): AbortSignal {
    return this.stopController.signal;
  }

  private changeState(state: StreamState): void {
    if (this.signal.aborted || state === this.state) return;
    this.state = state;
    this.target.onStateChange(state);
  }

  private async run(): Promise<void> {
    let retryDelay = MIN_RETRY_DELAY_MS;
    while (!this.signal.aborted) {
      const startedAt = Date.now();
      try {
        await this.readPastEvents();
        await this.target.onCaughtUp(this.signal);
        if (this.failures < MAX_SOCKET_FAILURES) await this.followSocket();
        else {
          await this.followStream();
          // Try a socket again: the obstacle may be gone.
          this.failures = MAX_SOCKET_FAILURES - 1;
        }
      } catch (error) {
        if (this.signal.aborted) return;
        if (isPermanentError(error)) {
          this.changeState("ended");
          this.target.onRefused(error);
          this.stop();
          return;
        }
        if (error instanceof ApiError && error.retryAfter) retryDelay = Math.max(retryDelay, error.retryAfter * 1000);
      }
      if (this.signal.aborted) return;
      // Reconnect at once after a connection that was stable.
      if (Date.now() - startedAt > MAX_RETRY_DELAY_MS) retryDelay = MIN_RETRY_DELAY_MS;
      this.changeState("lost");
      await this.pauseBeforeRetry(retryDelay * (0.75 + Math.random() / 2));
      retryDelay = Math.min(retryDelay * 2, MAX_RETRY_DELAY_MS);
    }
  }

  private async pauseBeforeRetry(milliseconds: number): Promise<void> {
    const pauseController = new AbortController();
    const end = () => pauseController.abort();
    this.endPause = end;
    this.signal.addEventListener("abort", end);
    await sleep(milliseconds, pauseController.signal);
    this.signal.removeEventListener("abort", end);
    this.endPause = null;
  }

  private async readPastEvents(): Promise<void> {
    for (let more = true; more && !this.signal.aborted; ) {
      const page = await api.get<{ items: SessionEvent[] }>(`${this.path}/events`, {
        query: { after: this.target.lastEventNumber(), limit: EVENT_PAGE_SIZE },
        headers: { Accept: "application/json" },
        signal: this.signal,
      });
      this.target.addEvents(page.items);
      more = page.items.length >= EVENT_PAGE_SIZE;
    }
  }

  private async followSocket(): Promise<void> {
    const socket = await openSocket(`${this.path}/ws`, { after: this.target.lastEventNumber() });
    if (this.signal.aborted) return socket.close();
    let opened = false;
    let timer = setTimeout(() => socket.close(), OPEN_TIMEOUT);
    const resetSilenceTimer = () => {
      clearTimeout(timer);
      timer = setTimeout(sendPing, SILENCE_TIMEOUT_MS);
    };
    const sendPing = () => {
      if (socket.readyState !== WebSocket.OPEN) return;
      socket.send('{"type":"ping"}');
      clearTimeout(timer);
      timer = setTimeout(closeSocket, PONG_TIMEOUT);
    };
    let closeSocket = () => socket.close();
    try {
      await new Promise<void>((resolve) => {
        // A dead connection may take minutes to close; do not wait for it.
        closeSocket = () => {
          socket.close();
          resolve();
        };
        this.signal.addEventListener("abort", closeSocket);
        socket.onopen = () => {
          opened = true;
          this.failures = 0;
          this.sendPing = sendPing;
          this.changeState("live");
          resetSilenceTimer();
        };
        socket.onmessage = ({ data }) => {
          resetSilenceTimer();
          const event = typeof data === "string" ? parseSessionEvent(data) : null;
          if (event) this.target.addEvents([event]);
        };
        socket.onclose = () => resolve();
      });
    } finally {
      clearTimeout(timer);
      this.signal.removeEventListener("abort", closeSocket);
      this.sendPing = null;
      socket.onopen = socket.onmessage = socket.onclose = null;
    }
    if (!opened && !this.signal.aborted) this.failures += 1;
  }

  /** Ends at the first lost connection, so that pages fill the gap and a socket is tried again. */
  private async followStream(): Promise<void> {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    this.signal.addEventListener("abort", stop);
    let refusal: ApiError | undefined;
    try {
      await followEventStream(`${this.path}/events`, {
        after: this.target.lastEventNumber(),
        signal: attempt.signal,
        onEvent: (message) => {
          const event = parseSessionEvent(message.data);
          if (event) this.target.addEvents([event]);
        },
        onState: (state, error) => {
          refusal = error;
          if (state === "live") this.changeState("live");
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
export function isPermanentError(error: unknown): error is ApiError {
  return error instanceof ApiError && error.status >= 400 && error.status < 500 && ![408, 429].includes(error.status);
}

/** Parse an event; null for other socket messages. */
export function parseSessionEvent(text: string): SessionEvent | null {
  try {
    const event = JSON.parse(text) as SessionEvent | null;
    return typeof event?.number === "number" && typeof event.type === "string" && event.data ? event : null;
  } catch {
    return null;
  }
}
