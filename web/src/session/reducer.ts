/** Reduces a session's events to its view. Pure: inputs are not changed. */

import type { SessionEvent, SessionUsage } from "@/api/session-events";
import {
  appendCallOutput,
  applyApprovalDecision,
  applyCallReady,
  applyMessageEnded,
  emptyAnswer,
  newCallView,
} from "./call-events";
import {
  applyDesktopEvent,
  applyFileEvent,
  applySandboxEvent,
  applyScreenEvent,
  applyTerminalEvent,
  setAgentAttention,
} from "./sandbox-events";
import { sandboxViewForTool } from "./sandbox-view-for-tool";
import type { SessionView, TurnView } from "./types";
import { nullPrototypeRecord, SessionViewDraft } from "./view-draft";

const NO_USAGE: SessionUsage = { requests: 0, input_tokens: 0, output_tokens: 0 };

export function emptySessionView(): SessionView {
  return {
    last: 0,
    title: "",
    agent: "",
    model: "",
    kinds: [],
    policy: null,
    instructions: "",
    budget: null,
    network: null,
    owned: null,
    state: "idle",
    reason: null,
    deleted: false,
    turn: 0,
    items: [],
    calls: nullPrototypeRecord(),
    approvals: nullPrototypeRecord(),
    turns: nullPrototypeRecord(),
    plan: [],
    sandboxes: nullPrototypeRecord(),
    sandboxOrder: [],
    usage: NO_USAGE,
    attention: null,
    earlyEvents: nullPrototypeRecord(),
  };
}

/** View with more events applied. Duplicates are ignored; early events wait for their turn. */
export function applySessionEvents(view: SessionView, events: readonly SessionEvent[]): SessionView {
  const newEvents = events.filter(({ number }) => number > view.last && !(number in view.earlyEvents));
  if (newEvents.length === 0) return view;
  const draft = new SessionViewDraft(view);
  let waiting = Object.keys(view.earlyEvents).length;
  for (const event of newEvents) {
    const { number } = event;
    if (number <= draft.view.last) continue;
    if (number > draft.view.last + 1) {
      if (!(number in draft.view.earlyEvents)) waiting += 1;
      draft.record("earlyEvents")[number] = event;
      // Earlier events may be gone for good, so gaps are not waited for.
      if (event.type === "session.deleted") draft.view.deleted = true;
      continue;
    }
    applySessionEvent(draft, event);
    for (let next = waiting ? draft.view.earlyEvents[number + 1] : undefined; next; ) {
      delete draft.record("earlyEvents")[next.number];
      waiting -= 1;
      applySessionEvent(draft, next);
      next = waiting ? draft.view.earlyEvents[next.number + 1] : undefined;
    }
  }
  return draft.view;
}

function applySessionEvent(draft: SessionViewDraft, event: SessionEvent): void {
  draft.view.last = event.number;
  const { view } = draft;
  const { at, number } = event;
  switch (event.type) {
    case "session.created": {
      const { title, agent, model, kinds } = event.data;
      Object.assign(view, { title, agent, model, kinds });
      break;
    }
    case "session.changed": {
      const { title, model, kinds, policy, instructions, budget, network } = event.data;
      const changes = { title, model, kinds, policy, instructions, budget, network };
      for (const [name, value] of Object.entries(changes))
        if (value !== undefined) Object.assign(view, { [name]: value });
      const { visibility, default_network } = event.data;
      if (default_network) view.network = null;
      if (visibility && view.owned) view.owned = { ...view.owned, visibility };
      break;
    }
    case "session.state":
      view.state = event.data.state;
      view.reason = event.data.reason ?? null;
      break;
    case "session.deleted":
      view.deleted = true;
      break;
    case "session.sandbox":
      applySandboxEvent(draft, event.data, event);
      break;
    case "session.desktop":
      applyDesktopEvent(draft, event.data, event);
      break;
    case "session.terminal":
      applyTerminalEvent(draft, event.data, event);
      break;
    case "session.screen":
      applyScreenEvent(draft, event.data);
      break;
    case "session.file":
      applyFileEvent(draft, event.data, event);
      break;
    case "session.compacted": {
      const { messages, before, after } = event.data;
      draft.add({ type: "compacted", id: `compacted-${number}`, turn: view.turn, at, messages, before, after });
      break;
    }
    case "turn.started": {
      const turn = findOrAddTurn(draft, event.data.turn, event.data.cause, at);
      Object.assign(turn, { state: "running", reason: null, endedAt: null });
      break;
    }
    case "turn.ended": {
      const { state, reason } = event.data;
      const turn = findOrAddTurn(draft, event.data.turn, "message", at);
      Object.assign(turn, { state, reason: reason ?? null, endedAt: state === "waiting" ? null : at });
      if (state !== "waiting") markMessagesRead(draft);
      break;
    }
    case "turn.error": {
      const { code, message, fatal } = event.data;
      draft.add({ type: "error", id: `error-${number}`, turn: view.turn, at, code, text: message, fatal });
      break;
    }
    case "step.started":
      if (!event.data.by) markMessagesRead(draft);
      break;
    case "plan.changed":
      view.plan = event.data.steps;
      break;
    case "usage.changed": {
      view.usage = event.data.usage;
      const turn = draft.turn(view.turn);
      if (turn) turn.usageAfter = view.usage;
      break;
    }
    case "message.received": {
      const { message, waits } = event.data;
      draft.add({ type: "message", id: message.id, turn: message.turn, at, message, isWaiting: waits });
      break;
    }
    case "message.started": {
      const { message_id: id, turn, step, by } = event.data;
      draft.add({ ...emptyAnswer(id, turn, at), step, by: by ?? null, isComplete: false });
      break;
    }
    case "message.delta": {
      const answer = draft.answer(event.data.message_id);
      if (answer && !answer.isComplete) answer.text += event.data.text;
      break;
    }
    case "message.ended":
      applyMessageEnded(draft, event.data, at);
      break;
    case "thought.started":
    case "thought.ended": {
      const answer = draft.answer(event.data.message_id);
      if (answer) answer.thinking = event.type === "thought.started";
      break;
    }
    case "thought.delta": {
      const answer = draft.answer(event.data.message_id);
      if (answer) answer.thought += event.data.text;
      break;
    }
    case "call.started": {
      const { message_id, call_id, name } = event.data;
      const answer = draft.answer(message_id);
      if (!answer || draft.view.calls[call_id]) break;
      answer.calls = [...answer.calls, call_id];
      draft.setEntry("calls", call_id, newCallView(answer, { id: call_id, name, arguments: {} }, at, null));
      break;
    }
    case "call.delta": {
      const call = draft.call(event.data.call_id);
      if (call?.progress === "writing") call.argumentsJson += event.data.text;
      break;
    }
    case "call.ready":
      applyCallReady(draft, event.data, at);
      break;
    case "call.running": {
      const call = draft.call(event.data.call_id);
      if (!call) break;
      Object.assign(call, { progress: "running", runningAt: at, sandbox: event.data.sandbox_id ?? call.sandbox });
      if (event.data.arguments) call.arguments = event.data.arguments;
      if (call.sandbox) setAgentAttention(draft, call.sandbox, sandboxViewForTool(call.tool), number);
      break;
    }
    case "call.output":
      appendCallOutput(draft, event.data.call_id, event.data.text);
      break;
    case "call.result": {
      const call = draft.call(event.data.call_id);
      if (call) Object.assign(call, { progress: "done", output: "", result: event.data.result, endedAt: at });
      break;
    }
    case "approval.required": {
      const { approval } = event.data;
      draft.setEntry("approvals", approval.id, { ...approval });
      const call = draft.call(approval.call_id);
      if (call) Object.assign(call, { approval: approval.id, progress: "asked" });
      break;
    }
    case "approval.decided": {
      const { approval_id, call_id, state, by, reason, arguments: edited, always } = event.data;
      applyApprovalDecision(draft, approval_id, call_id, {
        state,
        decided_by: by,
        reason,
        edited,
        always,
        decided_at: at,
      });
      const call = edited ? draft.call(call_id) : null;
      if (call && edited) call.arguments = edited;
      break;
    }
    case "approval.expired":
      applyApprovalDecision(draft, event.data.approval_id, event.data.call_id, { state: "expired", decided_at: at });
      break;
    // Event types unknown to this page are ignored.
  }
}

function findOrAddTurn(draft: SessionViewDraft, number: number, cause: TurnView["cause"], at: string): TurnView {
  draft.view.turn = Math.max(draft.view.turn, number);
  const existing = draft.turn(number);
  if (existing) return existing;
  const { usage } = draft.view;
  const times = { startedAt: at, endedAt: null, usageBefore: usage, usageAfter: usage };
  const turn: TurnView = { number, cause, state: "running", reason: null, ...times };
  draft.setEntry("turns", number, turn);
  return turn;
}

/** The agent has read the messages that were sent while it worked. */
function markMessagesRead(draft: SessionViewDraft): void {
  for (let index = draft.view.items.length - 1; index >= 0; index -= 1) {
    const item = draft.view.items[index];
    // No item of an earlier turn is still unread.
    if (item && item.turn < draft.view.turn) return;
    if (item?.type === "message" && item.isWaiting) draft.message(index).isWaiting = false;
  }
}
