/** Answers of the agent and the calls in them. */

import type { Call, CallReady, MessageEnded } from "@/api/session-events";
import type { Draft } from "./draft";
import type { AnswerItem, CallView } from "./types";

/** An answer in which nothing is said yet. */
export function silent(id: string, turn: number, at: string): AnswerItem {
  const nothing = { step: 0, by: null, text: "", thought: "", thinking: false, calls: [], whole: true, cut: null };
  return { type: "answer", id, turn, at, ...nothing };
}

/** A call of which only this much is known. */
export function written(answer: AnswerItem, call: Call, at: string, whole: Call | null): CallView {
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

/** The whole answer: it counts instead of all that was told of it before. */
export function answered(draft: Draft, data: MessageEnded, at: string): void {
  const answer = draft.answer(data.message_id);
  if (!answer) return;
  const calls = data.calls.map(({ id }) => id);
  for (const id of answer.calls) {
    // A call that the model did not come to the end of is none.
    if (!calls.includes(id)) delete draft.record("calls")[id];
  }
  Object.assign(answer, { text: data.text, calls, whole: true, thinking: false, cut: data.cut ?? null });
  for (const call of data.calls) {
    const held = draft.call(call.id);
    if (!held) draft.put("calls", call.id, written(answer, call, at, call));
    else if (held.progress === "writing") Object.assign(held, pick(call));
  }
}

function pick(call: Call): Pick<CallView, "name" | "arguments" | "malformed"> {
  const malformed = call.malformed ?? null;
  return { name: call.name, arguments: malformed === null ? call.arguments : null, malformed };
}

export function ready(draft: Draft, { call, kind, tool }: CallReady, at: string): void {
  let held = draft.call(call.id);
  if (!held) {
    // An agent program may make a call that no answer has told of.
    const { turn } = draft.view;
    const last = draft.lastAnswer(turn);
    let answer = last ? draft.answer(last.id) : null;
    if (!answer) {
      answer = silent(`answer-${call.id}`, turn, at);
      draft.add(answer);
    }
    answer.calls = [...answer.calls, call.id];
    held = written(answer, call, at, call);
    draft.put("calls", call.id, held);
  }
  Object.assign(held, pick(call), { kind: kind ?? null, tool });
  if (held.progress === "writing") held.progress = "ready";
}

/** Letters of a running call's output that are kept: the last ones. */
export const MOST_OUTPUT = 16 * 1024;

export function heard(draft: Draft, id: string, text: string): void {
  // After a restart it may be told of a call that has its result.
  if (draft.view.calls[id]?.progress !== "running") return;
  const call = draft.call(id);
  if (!call) return;
  call.heard += text.length;
  const kept = (call.output + text).slice(-MOST_OUTPUT);
  // The first letter may be the second half of one.
  call.output = kept.length === MOST_OUTPUT ? kept.replace(/^[\udc00-\udfff]/, "") : kept;
}

export function decided(draft: Draft, approvalId: string, callId: string, how: object): void {
  const approval = draft.approval(approvalId);
  const said = Object.entries(how).filter(([, value]) => value !== undefined);
  if (approval) Object.assign(approval, Object.fromEntries(said));
  const call = draft.call(callId);
  if (call?.progress === "asked") call.progress = "ready";
}
