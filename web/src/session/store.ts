/** Followed sessions, one store for each. */

import { useEffect, useMemo } from "react";
import { createStore, useStore } from "zustand";
import { useShallow } from "zustand/react/shallow";
import { type ApiError, api } from "@/api/client";
import type { StreamState } from "@/api/event-stream";
import type { SessionEvent, SessionMessage } from "@/api/session-events";
import type { Schema } from "@/api/types";
import { confirmDeliveredMessages, stopConfirmingMessages } from "./outbox";
import { applySessionEvents, emptySessionView } from "./reducer";
import { type FollowerTarget, isPermanentError, SessionFollower } from "./session-follower";
import { isHistoryComplete, mergeSessionRecord, prependMessages } from "./session-history";
import { refreshSessionList } from "./session-list";
import type { SessionView } from "./types";

export {
  discardMessage,
  type OutgoingMessage,
  retryMessage,
  sendMessage,
  useOutbox,
} from "./outbox";
export { type SessionHit, useSessionSearch, useSessions } from "./session-list";
export * from "./session-requests";

export interface FollowedSessionState {
  view: SessionView;
  link: StreamState;
  /** Why the session cannot be followed: unknown, deleted, or another user's. `reconnectSession` tries again. */
  error: unknown;
  /** Whether all past events have arrived. */
  caughtUp: boolean;
}

/** How long an unwatched session stays followed, so that returning to it is immediate. */
export const KEEP_FOLLOWING_MS = 30_000;
/** Fallback for hidden pages, which have no animation frames. */
const MAX_FRAME_MS = 250;

class FollowedSession implements FollowerTarget {
  readonly store = createStore<FollowedSessionState>(() => ({
    view: emptySessionView(),
    link: "connecting",
    error: null,
    caughtUp: false,
  }));
  private readonly id: string;
  private follower: SessionFollower | null = null;
  private viewers = 0;
  private endTimer: ReturnType<typeof setTimeout> | undefined;
  private queue: SessionEvent[] = [];
  private frame = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isSettled = false;

  constructor(id: string) {
    this.id = id;
  }

  /** Add a viewer. Returns a function that removes it. */
  addViewer(): () => void {
    clearTimeout(this.endTimer);
    this.viewers += 1;
    followedSessions.set(this.id, this);
    if (!this.follower || this.store.getState().error) this.startFollowing();
    let isActive = true;
    return () => {
      if (!isActive) return;
      isActive = false;
      this.viewers -= 1;
      if (this.viewers === 0) this.endTimer = setTimeout(() => this.stopFollowing(), KEEP_FOLLOWING_MS);
    };
  }

  startFollowing(): void {
    this.follower?.stop();
    this.store.setState({ error: null, link: "connecting" });
    this.follower = new SessionFollower(this.id, this);
    this.follower.start();
  }

  private stopFollowing(): void {
    this.follower?.stop();
    this.follower = null;
    this.unschedule();
    this.queue = [];
    if (followedSessions.get(this.id) === this) followedSessions.delete(this.id);
    stopConfirmingMessages(this.id);
  }

  lastEventNumber(): number {
    this.flush();
    return this.store.getState().view.last;
  }

  addEvents(events: readonly SessionEvent[]): void {
    if (events.length === 0) return;
    for (const event of events) this.queue.push(event);
    if (this.timer !== undefined) return;
    this.frame = requestAnimationFrame(this.flush);
    this.timer = setTimeout(this.flush, MAX_FRAME_MS);
  }

  onStateChange(link: StreamState): void {
    this.store.setState({ link });
  }

  async onCaughtUp(signal: AbortSignal): Promise<void> {
    this.flush();
    if (!this.isSettled) {
      const path = `/v1/sessions/${encodeURIComponent(this.id)}`;
      const session = await api.get<Schema<"Session">>(path, { signal });
      const isComplete = isHistoryComplete(this.store.getState().view, session);
      const messages = isComplete ? [] : await readMessages(path, signal);
      this.flush();
      this.store.setState(({ view }) => ({ view: prependMessages(mergeSessionRecord(view, session), messages) }));
      this.isSettled = true;
    }
    this.store.setState({ caughtUp: true });
  }

  onRefused(error: ApiError): void {
    this.flush();
    const { view } = this.store.getState();
    // A deleted session loses its events, including the last one.
    const deleted = view.deleted || (error.status === 404 && view.last > 0);
    this.store.setState({ error, link: "ended", view: deleted === view.deleted ? view : { ...view, deleted } });
  }

  private readonly flush = (): void => {
    this.unschedule();
    if (this.queue.length === 0) return;
    const events = this.queue;
    this.queue = [];
    const before = this.store.getState().view;
    const view = applySessionEvents(before, events);
    if (view === before) return;
    this.store.setState({ view });
    confirmDeliveredMessages(this.id, events);
    if (view.title !== before.title || view.state !== before.state || view.deleted !== before.deleted)
      refreshSessionList();
    if (view.deleted) {
      this.follower?.stop();
      this.store.setState({ link: "ended", caughtUp: true });
    }
  };

  private unschedule(): void {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    this.timer = undefined;
  }
}

async function readMessages(path: string, signal: AbortSignal): Promise<SessionMessage[]> {
  const found: SessionMessage[] = [];
  for (let after = 0, more = true; more; ) {
    const query = { after, pageSize: 100 };
    try {
      const page = await api.get<{ items: SessionMessage[]; next: number }>(`${path}/messages`, { query, signal });
      found.push(...page.items);
      more = page.items.length > 0 && page.next > after;
      after = page.next;
    } catch (error) {
      // Missing history must not block the live session.
      if (!isPermanentError(error)) throw error;
      more = false;
    }
  }
  return found;
}

const followedSessions = new Map<string, FollowedSession>();

function findOrAddFollowedSession(id: string): FollowedSession {
  const session = followedSessions.get(id) ?? new FollowedSession(id);
  followedSessions.set(id, session);
  return session;
}

/** Follow a session while a component is mounted; components share one connection. */
export function useSession<T>(id: string, select: (link: FollowedSessionState) => T): T {
  const session = useMemo(() => findOrAddFollowedSession(id), [id]);
  useEffect(() => session.addViewer(), [session]);
  return useStore(session.store, useShallow(select));
}

/** Current view of a session, without following it. */
export function peekSession(id: string): FollowedSessionState | null {
  return followedSessions.get(id)?.store.getState() ?? null;
}

/** Follow a session outside of components. Returns the function that stops it. */
export function watchSession(id: string, listener: (link: FollowedSessionState) => void): () => void {
  const session = findOrAddFollowedSession(id);
  const removeViewer = session.addViewer();
  const unsubscribe = session.store.subscribe(listener);
  return () => {
    unsubscribe();
    removeViewer();
  };
}

/** Try again after `error`. */
export function reconnectSession(id: string): void {
  followedSessions.get(id)?.startFollowing();
}
