/** What a session's record and messages add to its events: settings that no event tells, and what a fork began with. */

import type { Message } from "@/api/session-events";
import type { Schema } from "@/api/types";
import { silent, written } from "./calls";
import { bare } from "./draft";
import type { CallView, Item, SessionView } from "./types";

/** The settings as they are now. Events that come later count more. */
export function settled(view: SessionView, session: Schema<"Session">): SessionView {
  const { policy, instructions, budget, subject, created_by, visibility } = session;
  const owned = { subject, created_by, visibility };
  return { ...view, policy: policy as SessionView["policy"], instructions, budget: budget ?? null, owned };
}

/** Whether events tell all that was said. A fork's events begin where it was forked. */
export function isWhole(view: SessionView, session: Schema<"Session">): boolean {
  if (!session.origin) return true;
  const first = view.items.find((each) => each.type === "said");
  return first?.type === "said" && first.message.number === 1;
}

/** Put what was said before the first event in front of what events have told. */
export function preceded(view: SessionView, messages: readonly Message[]): SessionView {
  const known = new Set(view.items.map(({ id }) => id));
  const items: Item[] = [];
  const calls: Record<string, CallView> = bare();
  let turn = 0;
  for (const message of messages) {
    if (known.has(message.id)) continue;
    const { id, at } = message;
    if (message.role === "tool") {
      const call = message.call_id === undefined ? undefined : calls[message.call_id];
      if (!call) continue;
      const result = { content: message.content, failed: false, refused: false, seconds: 0 };
      Object.assign(call, { progress: "done", result, endedAt: at });
    } else if (message.role === "assistant") {
      const text = message.content.map((part) => (part.type === "text" ? part.text : "")).join("");
      const answer = { ...silent(id, message.turn, at), text, thought: message.thought, by: message.by ?? null };
      answer.cut = message.cut ?? null;
      answer.calls = message.calls.map((call) => call.id);
      for (const call of message.calls) calls[call.id] = { ...written(answer, call, at, call), progress: "ready" };
      items.push(answer);
    } else items.push({ type: "said", id, turn: message.turn, at, message, waits: false });
    turn = Math.max(turn, message.turn);
  }
  if (items.length === 0) return view;
  return {
    ...view,
    items: [...items, ...view.items],
    calls: Object.assign(bare(calls), view.calls),
    turn: Math.max(turn, view.turn),
  };
}
