/** Completes a view from the session's record and messages: settings without events, and the history of a fork. */

import type { SessionMessage } from "@/api/session-events";
import type { Schema } from "@/api/types";
import { emptyAnswer, newCallView } from "./call-events";
import type { CallView, ChatItem, SessionView } from "./types";
import { nullPrototypeRecord } from "./view-draft";

/** Merge the current settings; later events take precedence. */
export function mergeSessionRecord(view: SessionView, session: Schema<"Session">): SessionView {
  const { policy, instructions, budget, network, subject, created_by, visibility } = session;
  const owned = { subject, created_by, visibility };
  return {
    ...view,
    policy: policy as SessionView["policy"],
    instructions,
    budget: budget ?? null,
    network: network ?? null,
    owned,
  };
}

/** Whether the events contain the whole history. A fork's events start at the fork. */
export function isHistoryComplete(view: SessionView, session: Schema<"Session">): boolean {
  if (!session.origin) return true;
  const first = view.items.find((each) => each.type === "message");
  return first?.type === "message" && first.message.number === 1;
}

/** Prepend the messages before the first event. */
export function prependMessages(view: SessionView, messages: readonly SessionMessage[]): SessionView {
  const knownIds = new Set(view.items.map(({ id }) => id));
  const items: ChatItem[] = [];
  const calls: Record<string, CallView> = nullPrototypeRecord();
  let turn = 0;
  for (const message of messages) {
    if (knownIds.has(message.id)) continue;
    const { id, at } = message;
    if (message.role === "tool") {
      const call = message.call_id === undefined ? undefined : calls[message.call_id];
      if (!call) continue;
      const result = { content: message.content, failed: false, refused: false, seconds: 0 };
      Object.assign(call, { progress: "done", result, endedAt: at });
    } else if (message.role === "assistant") {
      const text = message.content.map((part) => (part.type === "text" ? part.text : "")).join("");
      const answer = { ...emptyAnswer(id, message.turn, at), text, thought: message.thought, by: message.by ?? null };
      answer.cut = message.cut ?? null;
      answer.calls = message.calls.map((call) => call.id);
      for (const call of message.calls) calls[call.id] = { ...newCallView(answer, call, at, call), progress: "ready" };
      items.push(answer);
    } else items.push({ type: "message", id, turn: message.turn, at, message, isWaiting: false });
    turn = Math.max(turn, message.turn);
  }
  if (items.length === 0) return view;
  return {
    ...view,
    items: [...items, ...view.items],
    calls: Object.assign(nullPrototypeRecord(calls), view.calls),
    turn: Math.max(turn, view.turn),
  };
}
