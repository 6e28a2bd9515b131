/** What stands below what in the thread. */

import type { Outgoing } from "@/session/store";
import type { AnswerItem, Item, SessionView, TurnView } from "@/session/types";

export type Row =
  | { type: "item"; id: string; item: Item }
  | { type: "turn"; id: string; turn: TurnView; last: string; text: string }
  | { type: "outgoing"; id: string; outgoing: Outgoing }
  | { type: "unread"; id: string };

export interface Shown {
  items: readonly Item[];
  turns: Readonly<Record<number, TurnView>>;
  outbox: readonly Outgoing[];
  /** The id of the item after which everything is new; null if nothing is. */
  readUntil: string | null;
}

/** Rows in their order. A turn that has ended has a foot below the last thing that belongs to it. */
export function rowsOf({ items, turns, outbox, readUntil }: Shown): Row[] {
  const rows: Row[] = [];
  const lastOf = new Map<number, number>();
  items.forEach((item, index) => {
    if (!waits(item)) lastOf.set(item.turn, index);
  });
  items.forEach((item, index) => {
    if (visible(item)) rows.push({ type: "item", id: item.id, item });
    const turn = turns[item.turn];
    if (lastOf.get(item.turn) === index && turn && isOver(turn))
      rows.push({ type: "turn", id: `turn-${turn.number}`, turn, ...endOf(items, index) });
    if (item.id === readUntil && index < items.length - 1) rows.push({ type: "unread", id: "unread" });
  });
  for (const outgoing of outbox) rows.push({ type: "outgoing", id: `out-${outgoing.key}`, outgoing });
  return rows;
}

/** The message from which a fork would go on, and the last words of the turn that ends there. */
function endOf(items: readonly Item[], index: number): { last: string; text: string } {
  const turn = items[index]?.turn;
  let last = "";
  for (let place = index; place >= 0; place -= 1) {
    const item = items[place];
    if (!item || item.turn !== turn) break;
    if (!last && (item.type === "answer" || item.type === "said")) last = item.id;
    if (item.type === "answer" && item.text) return { last, text: item.text };
  }
  return { last, text: "" };
}

function waits(item: Item): boolean {
  return item.type === "said" && item.waits;
}

function isOver(turn: TurnView): boolean {
  return turn.state === "done" || turn.state === "cancelled" || turn.state === "failed";
}

/** An answer that has begun and says nothing yet needs no place of its own: the thread's end shows that it is at work. */
function visible(item: Item): boolean {
  return item.type !== "answer" || !isBlank(item);
}

export function isBlank(item: AnswerItem): boolean {
  return !item.text && !item.thought && !item.thinking && item.calls.length === 0 && !item.cut;
}

/** How many things that a person would count as new stand after an item. */
export function countAfter(items: readonly Item[], id: string | null): number {
  if (id === null) return 0;
  const index = items.findIndex((item) => item.id === id);
  return index < 0 ? 0 : items.slice(index + 1).filter(visible).length;
}

/** What the agent is doing, where nothing in the thread shows it. */
export type Doing = "nothing" | "starting" | "thinking" | "writing" | "working" | "waiting" | "parked";

export function doing(view: SessionView): Doing {
  if (view.state === "waiting" || view.state === "parked") return view.state;
  if (view.state !== "running") return "nothing";
  if (Object.values(view.boxes).some((box) => box.state === "starting")) return "starting";
  const last = view.items.findLast((item): item is AnswerItem => item.type === "answer");
  if (!last || last.turn < view.turn) return "thinking";
  if (last.calls.some((id) => view.calls[id]?.progress === "running")) return "working";
  return last.whole || isBlank(last) ? "thinking" : "writing";
}

/** Whether the agent can be told to go on: it has stopped before it was done. */
export function canGoOn(view: SessionView): boolean {
  const turn = view.turns[view.turn];
  return view.state === "idle" && (turn?.state === "failed" || turn?.state === "cancelled");
}
