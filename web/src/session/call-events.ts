/** Applies answer and call events to a view. */

import type { CallReady, MessageEnded, ToolCall } from "@/api/session-events";
import type { AnswerItem, CallView } from "./types";
import type { ViewDraft } from "./view-draft";

/** An answer without content. */
export function emptyAnswer(id: string, turn: number, at: string): AnswerItem {
  const nothing = { step: 0, by: null, text: "", thought: "", thinking: false, calls: [], whole: true, cut: null };
  return { type: "answer", id, turn, at, ...nothing };
}

/** A call with only its name known. */
export function newCallView(answer: AnswerItem, call: ToolCall, at: string, whole: ToolCall | null): CallView {
  return {
    id: call.id,
    answer: answer.id,
    turn: answer.turn,
    name: call.name,
    kind: null,
    tool: call.name,
    written: "",
    arguments: whole && whole.malformed === undefined ? whole.arguments : null,
    malformed: whole?.malformed ?? null,
    progress: "writing",
    sandbox: null,
    approval: null,
    output: "",
    heard: 0,
    result: null,
    at,
    runningAt: null,
    endedAt: null,
  };
}

/** Apply the complete answer; it replaces the streamed parts. */
export function applyMessageEnded(draft: ViewDraft, data: MessageEnded, at: string): void {
  const answer = draft.answer(data.message_id);
  if (!answer) return;
  const calls = data.calls.map(({ id }) => id);
  for (const id of answer.calls) {
    // Drop calls that the model did not finish.
    if (!calls.includes(id)) delete draft.record("calls")[id];
  }
  Object.assign(answer, { text: data.text, calls, whole: true, thinking: false, cut: data.cut ?? null });
  for (const call of data.calls) {
    const held = draft.call(call.id);
    if (!held) draft.put("calls", call.id, newCallView(answer, call, at, call));
    else if (held.progress === "writing") Object.assign(held, callFields(call));
  }
}

function callFields(call: ToolCall): Pick<CallView, "name" | "arguments" | "malformed"> {
  const malformed = call.malformed ?? null;
  return { name: call.name, arguments: malformed === null ? call.arguments : null, malformed };
}

export function applyCallReady(draft: ViewDraft, { call, kind, tool }: CallReady, at: string): void {
  let held = draft.call(call.id);
  if (!held) {
    // An agent program may make a call that no answer announced.
    const { turn } = draft.view;
    const last = draft.lastAnswer(turn);
    let answer = last ? draft.answer(last.id) : null;
    if (!answer) {
      answer = emptyAnswer(`answer-${call.id}`, turn, at);
      draft.add(answer);
    }
    answer.calls = [...answer.calls, call.id];
    held = newCallView(answer, call, at, call);
    draft.put("calls", call.id, held);
  }
  Object.assign(held, callFields(call), { kind: kind ?? null, tool });
  if (held.progress === "writing") held.progress = "ready";
}

/** Maximum characters of live output kept; the newest ones. */
export const MAX_OUTPUT = 16 * 1024;

export function appendCallOutput(draft: ViewDraft, id: string, text: string): void {
  // After a restart, output may arrive for a finished call.
  if (draft.view.calls[id]?.progress !== "running") return;
  const call = draft.call(id);
  if (!call) return;
  call.heard += text.length;
  const kept = (call.output + text).slice(-MAX_OUTPUT);
  // Drop half of a surrogate pair at the start.
  call.output = kept.length === MAX_OUTPUT ? kept.replace(/^[\udc00-\udfff]/, "") : kept;
}

export function applyDecision(draft: ViewDraft, approvalId: string, callId: string, how: object): void {
  const approval = draft.approval(approvalId);
  const said = Object.entries(how).filter(([, value]) => value !== undefined);
  if (approval) Object.assign(approval, Object.fromEntries(said));
  const call = draft.call(callId);
  if (call?.progress === "asked") call.progress = "ready";
}
