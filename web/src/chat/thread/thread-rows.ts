/** Rows of the chat. */

import type { OutgoingMessage } from "@/session/store";
import type { AnswerItem, ChatItem, SessionView, TurnView } from "@/session/types";

export type ThreadRow =
  | { type: "item"; id: string; item: ChatItem }
  | { type: "turn"; id: string; turn: TurnView; last: string; text: string }
  | { type: "outgoing"; id: string; outgoing: OutgoingMessage }
  | { type: "unread"; id: string };

export interface ThreadRowsInput {
  items: readonly ChatItem[];
  turns: Readonly<Record<number, TurnView>>;
  outbox: readonly OutgoingMessage[];
  /** Id of the last item that was read; null if nothing is new. */
  readUntil: string | null;
}

/** Rows in display order. A finished turn has a footer below its last item. */
export function buildThreadRows({ items, turns, outbox, readUntil }: ThreadRowsInput): ThreadRow[] {
  const rows: ThreadRow[] = [];
  const lastIndexOfTurn = new Map<number, number>();
  items.forEach((item, index) => {
    if (!isWaitingMessage(item)) lastIndexOfTurn.set(item.turn, index);
  });
  items.forEach((item, index) => {
    if (isVisibleItem(item)) rows.push({ type: "item", id: item.id, item });
    const turn = turns[item.turn];
    if (lastIndexOfTurn.get(item.turn) === index && turn && isTurnOver(turn))
      rows.push({ type: "turn", id: `turn-${turn.number}`, turn, ...turnEnd(items, index) });
    if (item.id === readUntil && index < items.length - 1) rows.push({ type: "unread", id: "unread" });
  });
  for (const outgoing of outbox) rows.push({ type: "outgoing", id: `out-${outgoing.key}`, outgoing });
  return rows;
}

/** Message to fork from, and the last text of the turn that ends there. */
function turnEnd(items: readonly ChatItem[], index: number): { last: string; text: string } {
  const turn = items[index]?.turn;
  let last = "";
  for (let position = index; position >= 0; position -= 1) {
    const item = items[position];
    if (!item || item.turn !== turn) break;
    if (!last && (item.type === "answer" || item.type === "message")) last = item.id;
    if (item.type === "answer" && item.text) return { last, text: item.text };
  }
  return { last, text: "" };
}

function isWaitingMessage(item: ChatItem): boolean {
  return item.type === "message" && item.isWaiting;
}

function isTurnOver(turn: TurnView): boolean {
  return turn.state === "done" || turn.state === "cancelled" || turn.state === "failed";
}

/** An answer without content has no row: the status line at the end shows that the agent is working. */
function isVisibleItem(item: ChatItem): boolean {
  return item.type !== "answer" || !isBlankAnswer(item);
}

export function isBlankAnswer(item: AnswerItem): boolean {
  return !item.text && !item.thought && !item.thinking && item.calls.length === 0 && !item.cut;
}

/** Number of items after the given one that count as new. */
export function countItemsAfter(items: readonly ChatItem[], id: string | null): number {
  if (id === null) return 0;
  const index = items.findIndex((item) => item.id === id);
  return index < 0 ? 0 : items.slice(index + 1).filter(isVisibleItem).length;
}

/** The agent's current activity that no row shows. */
export type AgentStatus = "nothing" | "starting" | "thinking" | "writing" | "working" | "waiting" | "parked";

export function agentStatus(view: SessionView): AgentStatus {
  if (view.state === "waiting" || view.state === "parked") return view.state;
  if (view.state !== "running") return "nothing";
  if (Object.values(view.sandboxes).some((sandbox) => sandbox.state === "starting")) return "starting";
  const last = view.items.findLast((item): item is AnswerItem => item.type === "answer");
  if (!last || last.turn < view.turn) return "thinking";
  if (last.calls.some((id) => view.calls[id]?.progress === "running")) return "working";
  return last.isComplete || isBlankAnswer(last) ? "thinking" : "writing";
}

/** Whether the agent can continue: it stopped before it was done. */
export function canAgentContinue(view: SessionView): boolean {
  const turn = view.turns[view.turn];
  return view.state === "idle" && (turn?.state === "failed" || turn?.state === "cancelled");
}
