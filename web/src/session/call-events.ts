/** Applies answer and call events to a view. */

import type { CallReady, MessageEnded, ToolCall } from "@/api/session-events";
import type { AnswerItem, CallView } from "./types";
import type { SessionViewDraft } from "./view-draft";

/** An answer without content. */
export function emptyAnswer(id: string, turn: number, at: string): AnswerItem {
  const emptyFields = {
    step: 0,
    by: null,
    text: "",
    thought: "",
    thinking: false,
    calls: [],
    isComplete: true,
    cut: null,
  };
  return { type: "answer", id, turn, at, ...emptyFields };
}

/** A call with only its name known. */
export function newCallView(answer: AnswerItem, call: ToolCall, at: string, completeCall: ToolCall | null): CallView {
  return {
    id: call.id,
    answer: answer.id,
    turn: answer.turn,
    name: call.name,
    kind: null,
    tool: call.name,
    argumentsJson: "",
    arguments: completeCall && completeCall.malformed === undefined ? completeCall.arguments : null,
    malformed: completeCall?.malformed ?? null,
    progress: "writing",
    sandbox: null,
    approval: null,
    output: "",
    outputLength: 0,
    result: null,
    at,
    runningAt: null,
    endedAt: null,
  };
}

/** Apply the complete answer; it replaces the streamed parts. */
export function applyMessageEnded(draft: SessionViewDraft, data: MessageEnded, at: string): void {
  const answer = draft.answer(data.message_id);
  if (!answer) return;
  const calls = data.calls.map(({ id }) => id);
  for (const id of answer.calls) {
    // Drop calls that the model did not finish.
    if (!calls.includes(id)) delete draft.record("calls")[id];
  }
  Object.assign(answer, { text: data.text, calls, isComplete: true, thinking: false, cut: data.cut ?? null });
  for (const call of data.calls) {
    const existing = draft.call(call.id);
    if (!existing) draft.setEntry("calls", call.id, newCallView(answer, call, at, call));
    else if (existing.progress === "writing") Object.assign(existing, callFields(call));
  }
}

function callFields(call: ToolCall): Pick<CallView, "name" | "arguments" | "malformed"> {
  const malformed = call.malformed ?? null;
  return { name: call.name, arguments: malformed === null ? call.arguments : null, malformed };
}

export function applyCallReady(draft: SessionViewDraft, { call, kind, tool }: CallReady, at: string): void {
  let existing = draft.call(call.id);
  if (!existing) {
    // An agent program may make a call that no answer announced.
    const { turn } = draft.view;
    const last = draft.lastAnswer(turn);
    let answer = last ? draft.answer(last.id) : null;
    if (!answer) {
      answer = emptyAnswer(`answer-${call.id}`, turn, at);
      draft.add(answer);
    }
    answer.calls = [...answer.calls, call.id];
    existing = newCallView(answer, call, at, call);
    draft.setEntry("calls", call.id, existing);
  }
  Object.assign(existing, callFields(call), { kind: kind ?? null, tool });
  if (existing.progress === "writing") existing.progress = "ready";
}

/** Maximum characters of live output kept; the newest ones. */
export const MAX_LIVE_OUTPUT = 16 * 1024;

export function appendCallOutput(draft: SessionViewDraft, id: string, text: string): void {
  // After a restart, output may arrive for a finished call.
  if (draft.view.calls[id]?.progress !== "running") return;
  const call = draft.call(id);
  if (!call) return;
  call.outputLength += text.length;
  const keptOutput = (call.output + text).slice(-MAX_LIVE_OUTPUT);
  // Drop half of a surrogate pair at the start.
  call.output = keptOutput.length === MAX_LIVE_OUTPUT ? keptOutput.replace(/^[\udc00-\udfff]/, "") : keptOutput;
}

export function applyApprovalDecision(
  draft: SessionViewDraft,
  approvalId: string,
  callId: string,
  decision: object,
): void {
  const approval = draft.approval(approvalId);
  const definedFields = Object.entries(decision).filter(([, value]) => value !== undefined);
  if (approval) Object.assign(approval, Object.fromEntries(definedFields));
  const call = draft.call(callId);
  if (call?.progress === "asked") call.progress = "ready";
}
