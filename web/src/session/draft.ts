/** A view that is being changed: what is touched is copied once, everything else stays the very same object. */

import type { Approval } from "@/api/session-events";
import type { AnswerItem, BoxView, CallView, Item, SaidItem, SessionView, TurnView } from "./types";

type Records = "calls" | "approvals" | "turns" | "boxes" | "early";

/** A record without a prototype, so that an id such as `constructor` or `__proto__` is an id like any other. */
export function bare<T extends object>(entries?: T): T {
  return Object.assign(Object.create(null), entries) as T;
}

export class Draft {
  readonly view: SessionView;
  private readonly fresh = new Set<object>();

  constructor(before: SessionView) {
    this.view = { ...before };
  }

  /** A record that may be written to. */
  record<Name extends Records>(name: Name): SessionView[Name] {
    const held = this.view[name];
    if (this.fresh.has(held)) return held;
    const copy = bare(held);
    this.fresh.add(copy);
    this.view[name] = copy;
    return copy;
  }

  items(): Item[] {
    const held = this.view.items;
    if (this.fresh.has(held)) return held;
    const copy = [...held];
    this.fresh.add(copy);
    this.view.items = copy;
    return copy;
  }

  add(item: Item): void {
    this.fresh.add(item);
    this.items().push(item);
  }

  answer(id: string): AnswerItem | null {
    const place = this.view.items.findLastIndex((each) => each.type === "answer" && each.id === id);
    return place < 0 ? null : (this.item(place) as AnswerItem);
  }

  said(place: number): SaidItem {
    return this.item(place) as SaidItem;
  }

  /** The last answer, only to be looked at. */
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

  box(id: string): BoxView | null {
    return this.edit("boxes", id);
  }

  put<Name extends Records>(name: Name, id: keyof SessionView[Name], entry: SessionView[Name][typeof id]): void {
    if (typeof entry === "object" && entry !== null) this.fresh.add(entry);
    this.record(name)[id] = entry;
  }

  /** A list within an entry that may be written to; the caller puts it in the entry's place. */
  list<T>(held: T[]): T[] {
    if (this.fresh.has(held)) return held;
    const copy = [...held];
    this.fresh.add(copy);
    return copy;
  }

  private item(place: number): Item {
    const held = this.view.items[place] as Item;
    if (this.fresh.has(held)) return held;
    const copy = { ...held };
    this.fresh.add(copy);
    this.items()[place] = copy;
    return copy;
  }

  private edit<Name extends Records>(
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
