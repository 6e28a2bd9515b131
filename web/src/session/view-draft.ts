/** Copy-on-write draft of a view: touched parts are copied once, all others keep their identity. */

import type { Approval } from "@/api/session-events";
import type { AnswerItem, CallView, ChatItem, MessageItem, SandboxView, SessionView, TurnView } from "./types";

type RecordName = "calls" | "approvals" | "turns" | "sandboxes" | "earlyEvents";

/** Object without a prototype, so that ids such as `constructor` or `__proto__` are safe. */
export function nullPrototypeRecord<T extends object>(entries?: T): T {
  return Object.assign(Object.create(null), entries) as T;
}

export class SessionViewDraft {
  readonly view: SessionView;
  private readonly writable = new Set<object>();

  constructor(before: SessionView) {
    this.view = { ...before };
  }

  /** Writable copy of a record. */
  record<Name extends RecordName>(name: Name): SessionView[Name] {
    const current = this.view[name];
    if (this.writable.has(current)) return current;
    const copy = nullPrototypeRecord(current);
    this.writable.add(copy);
    this.view[name] = copy;
    return copy;
  }

  items(): ChatItem[] {
    const current = this.view.items;
    if (this.writable.has(current)) return current;
    const copy = [...current];
    this.writable.add(copy);
    this.view.items = copy;
    return copy;
  }

  add(item: ChatItem): void {
    this.writable.add(item);
    this.items().push(item);
  }

  answer(id: string): AnswerItem | null {
    const index = this.view.items.findLastIndex((each) => each.type === "answer" && each.id === id);
    return index < 0 ? null : (this.item(index) as AnswerItem);
  }

  message(index: number): MessageItem {
    return this.item(index) as MessageItem;
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

  setEntry<Name extends RecordName>(
    name: Name,
    id: keyof SessionView[Name],
    entry: SessionView[Name][typeof id],
  ): void {
    if (typeof entry === "object" && entry !== null) this.writable.add(entry);
    this.record(name)[id] = entry;
  }

  /** Writable copy of a list in an entry; the caller must assign it. */
  list<T>(current: T[]): T[] {
    if (this.writable.has(current)) return current;
    const copy = [...current];
    this.writable.add(copy);
    return copy;
  }

  private item(index: number): ChatItem {
    const current = this.view.items[index] as ChatItem;
    if (this.writable.has(current)) return current;
    const copy = { ...current };
    this.writable.add(copy);
    this.items()[index] = copy;
    return copy;
  }

  private edit<Name extends RecordName>(
    name: Name,
    id: keyof SessionView[Name],
  ): NonNullable<SessionView[Name][typeof id]> | null {
    const current = this.view[name][id];
    if (current === undefined || current === null) return null;
    if (this.writable.has(current as object)) return current;
    const copy = { ...(current as object) } as NonNullable<typeof current>;
    this.writable.add(copy as object);
    this.record(name)[id] = copy;
    return copy;
  }
}
