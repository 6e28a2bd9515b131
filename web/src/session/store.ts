/** Sessions that are being followed, one store for each. */

import { useEffect, useMemo } from "react";
import { createStore, useStore } from "zustand";
import { useShallow } from "zustand/react/shallow";
import { type ApiError, api } from "@/api/client";
import type { Message, SessionEvent } from "@/api/session-events";
import type { LinkState } from "@/api/streams";
import type { Schema } from "@/api/types";
import { Follower, isFinal, type Keeper } from "./follow";
import { isWhole, preceded, settled } from "./history";
import { listChanged } from "./list";
import { arrived, unfollowed } from "./outbox";
import { apply, empty } from "./reducer";
import type { SessionView } from "./types";

export * from "./actions";
export { type SessionHit, useSessionSearch, useSessions } from "./list";
export { discard, type Outgoing, retry, send, useOutbox } from "./outbox";

export interface SessionLink {
  view: SessionView;
  link: LinkState;
  /** Why there is nothing to follow: it is unknown, deleted, or somebody else's. `reconnect` tries again. */
  error: unknown;
  /** Whether all events that there were at the beginning have come. */
  caughtUp: boolean;
}

/** How long a session that nobody looks at is followed, so that going back shows it at once. */
export const KEPT = 30_000;
/** Where there are no animation frames, because the page is hidden. */
const LONGEST_FRAME = 250;

class Followed implements Keeper {
  readonly store = createStore<SessionLink>(() => ({
    view: empty(),
    link: "connecting",
    error: null,
    caughtUp: false,
  }));
  private readonly id: string;
  private follower: Follower | null = null;
  private viewers = 0;
  private leaving: ReturnType<typeof setTimeout> | undefined;
  private queue: SessionEvent[] = [];
  private frame = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isSettled = false;

  constructor(id: string) {
    this.id = id;
  }

  /** Somebody looks at it. Gives what to call when they look away. */
  enter(): () => void {
    clearTimeout(this.leaving);
    this.viewers += 1;
    followed.set(this.id, this);
    if (!this.follower || this.store.getState().error) this.begin();
    let inside = true;
    return () => {
      if (!inside) return;
      inside = false;
      this.viewers -= 1;
      if (this.viewers === 0) this.leaving = setTimeout(() => this.end(), KEPT);
    };
  }

  begin(): void {
    this.follower?.stop();
    this.store.setState({ error: null, link: "connecting" });
    this.follower = new Follower(this.id, this);
    this.follower.start();
  }

  private end(): void {
    this.follower?.stop();
    this.follower = null;
    this.unschedule();
    this.queue = [];
    if (followed.get(this.id) === this) followed.delete(this.id);
    unfollowed(this.id);
  }

  last(): number {
    this.flush();
    return this.store.getState().view.last;
  }

  take(events: readonly SessionEvent[]): void {
    if (events.length === 0) return;
    for (const event of events) this.queue.push(event);
    if (this.timer !== undefined) return;
    this.frame = requestAnimationFrame(this.flush);
    this.timer = setTimeout(this.flush, LONGEST_FRAME);
  }

  link(link: LinkState): void {
    this.store.setState({ link });
  }

  async caughtUp(signal: AbortSignal): Promise<void> {
    this.flush();
    if (!this.isSettled) {
      const path = `/v1/sessions/${encodeURIComponent(this.id)}`;
      const session = await api.get<Schema<"Session">>(path, { signal });
      const whole = isWhole(this.store.getState().view, session);
      const messages = whole ? [] : await said(path, signal);
      this.flush();
      this.store.setState(({ view }) => ({ view: preceded(settled(view, session), messages) }));
      this.isSettled = true;
    }
    this.store.setState({ caughtUp: true });
  }

  refused(error: ApiError): void {
    this.flush();
    const { view } = this.store.getState();
    // Its events are gone with it, the last one too for who comes too late.
    const deleted = view.deleted || (error.status === 404 && view.last > 0);
    this.store.setState({ error, link: "ended", view: deleted === view.deleted ? view : { ...view, deleted } });
  }

  private readonly flush = (): void => {
    this.unschedule();
    if (this.queue.length === 0) return;
    const events = this.queue;
    this.queue = [];
    const before = this.store.getState().view;
    const view = apply(before, events);
    if (view === before) return;
    this.store.setState({ view });
    arrived(this.id, events);
    if (view.title !== before.title || view.state !== before.state || view.deleted !== before.deleted) listChanged();
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

async function said(path: string, signal: AbortSignal): Promise<Message[]> {
  const found: Message[] = [];
  for (let after = 0, more = true; more; ) {
    const query = { after, pageSize: 100 };
    try {
      const page = await api.get<{ items: Message[]; next: number }>(`${path}/messages`, { query, signal });
      found.push(...page.items);
      more = page.items.length > 0 && page.next > after;
      after = page.next;
    } catch (error) {
      // What cannot be had of the past keeps nobody from the present.
      if (!isFinal(error)) throw error;
      more = false;
    }
  }
  return found;
}

const followed = new Map<string, Followed>();

function followedOf(id: string): Followed {
  const held = followed.get(id) ?? new Followed(id);
  followed.set(id, held);
  return held;
}

/** Follow a session while a component shows it; several share one connection. */
export function useSession<T>(id: string, select: (link: SessionLink) => T): T {
  const held = useMemo(() => followedOf(id), [id]);
  useEffect(() => held.enter(), [held]);
  return useStore(held.store, useShallow(select));
}

/** What is known of a session right now, without following it. */
export function peek(id: string): SessionLink | null {
  return followed.get(id)?.store.getState() ?? null;
}

/** Follow a session outside of components. Gives what to call at the end. */
export function watch(id: string, listener: (link: SessionLink) => void): () => void {
  const held = followedOf(id);
  const leave = held.enter();
  const unsubscribe = held.store.subscribe(listener);
  return () => {
    unsubscribe();
    leave();
  };
}

/** Try again after `error`. */
export function reconnect(id: string): void {
  followed.get(id)?.begin();
}
