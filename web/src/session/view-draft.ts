/** Copy-on-write draft of a view: touched parts are copied once, all others keep their identity. */

import type { Approval } from "@/api/session-events";
import type { AnswerItem, CallView, ChatItem, MessageItem, SandboxView, SessionView, TurnView } from "./types";

type RecordName = "calls" | "approvals" | "turns" | "sandboxes" | "early";

/** Object without a prototype, so that ids such as `constructor` or `__proto__` are safe. */
export function nullPrototypeRecord<T extends object>(entries?: T): T {
  return Object.assign(Object.create(null), entries) as T;
}

export class ViewDraft {
  readonly view: SessionView;
  private readonly fresh = new Set<object>();

  constructor(before: SessionView) {
    this.view = { ...before };
  }

  /** Writable copy of a record. */
  record<Name extends RecordName>(name: Name): SessionView[Name] {
    const held = this.view[name];
    if (this.fresh.has(held)) return held;
    const copy = nullPrototypeRecord(held);
    this.fresh.add(copy);
    this.view[name] = copy;
    return copy;
  }

  items(): ChatItem[] {
    const held = this.view.items;
    if (this.fresh.has(held)) return held;
    const copy = [...held];
    this.fresh.add(copy);
    this.view.items = copy;
    return copy;
  }

  add(item: ChatItem): void {
    this.fresh.add(item);
    this.items().push(item);
  }

  answer(id: string): AnswerItem | null {
    const place = this.view.items.findLastIndex((each) => each.type === "answer" && each.id === id);
    return place < 0 ? null : (this.item(place) as AnswerItem);
  }

  said(place: number): MessageItem {
    return this.item(place) as MessageItem;
  }

  /** The last answer, read-only. */
  lastAnswer(turn: number | null = null): AnswerItem | null {
    const found = this.view.items.findLast((each) => each.type === "answer");
    return found?.type === "answer" && (turn === null || found.turn === turn) ? found : null;
  }

  call(id: string): CallView | null {
    return this.edit("calls", id);
  }

  approval(id: string): Approval | null {
    return this.edit("approvals", id);
  }

  turn(number: number): TurnView | null {
    return this.edit("turns", number);
  }

  sandbox(id: string): SandboxView | null {
    return this.edit("sandboxes", id);
  }

  put<Name extends RecordName>(name: Name, id: keyof SessionView[Name], entry: SessionView[Name][typeof id]): void {
    if (typeof entry === "object" && entry !== null) this.fresh.add(entry);
    this.record(name)[id] = entry;
  }

  /** Writable copy of a list in an entry; the caller must assign it. */
  list<T>(held: T[]): T[] {
    if (this.fresh.has(held)) return held;
    const copy = [...held];
    this.fresh.add(copy);
    return copy;
  }

  private item(place: number): ChatItem {
    const held = this.view.items[place] as ChatItem;
    if (this.fresh.has(held)) return held;
    const copy = { ...held };
    this.fresh.add(copy);
    this.items()[place] = copy;
    return copy;
  }

  private edit<Name extends RecordName>(
    name: Name,
    id: keyof SessionView[Name],
  ): NonNullable<SessionView[Name][typeof id]> | null {
    const held = this.view[name][id];
    if (held === undefined || held === null) return null;
    if (this.fresh.has(held as object)) return held;
    const copy = { ...(held as object) } as NonNullable<typeof held>;
    this.fresh.add(copy as object);
    this.record(name)[id] = copy;
    return copy;
  }
}
