/** Applies sandbox events to a view. */

import type { SessionDesktop, SessionFile, SessionSandbox, SessionTerminal } from "@/api/session-events";
import { viewForTool } from "./tool-view";
import type { AgentAttention, SandboxView } from "./types";
import type { ViewDraft } from "./view-draft";

interface EventPosition {
  number: number;
  at: string;
}

function newSandboxView(id: string, kind: string): SandboxView {
  return {
    id,
    kind,
    state: "ready",
    reason: null,
    building: null,
    desktop: "none",
    holder: null,
    terminals: [],
    files: [],
    screen: 0,
  };
}

/** The sandbox, created if it is not known yet. */
function findOrAddSandbox(draft: ViewDraft, id: string, kind: string): SandboxView {
  const held = draft.sandbox(id);
  if (held) return held;
  const { sandboxOrder } = draft.view;
  // The starting entry becomes the sandbox, at the same position.
  const starting = kind !== id && kind in draft.view.sandboxes;
  draft.view.sandboxOrder = starting ? sandboxOrder.map((each) => (each === kind ? id : each)) : [...sandboxOrder, id];
  if (starting) delete draft.record("sandboxes")[kind];
  const sandbox = newSandboxView(id, kind);
  draft.put("sandboxes", id, sandbox);
  return sandbox;
}

export function setAttention(draft: ViewDraft, sandbox: string, view: AgentAttention["view"], number: number): void {
  draft.view.attention = { sandbox, view, number };
}

export function applySandboxEvent(draft: ViewDraft, data: SessionSandbox, place: EventPosition): void {
  const { kind, state } = data;
  const sandbox = findOrAddSandbox(draft, data.sandbox_id || kind, kind);
  sandbox.state = state;
  sandbox.reason = data.reason ?? null;
  sandbox.building = (state === "starting" && data.building) || null;
  if (state === "broken" || state === "released") {
    sandbox.holder = null;
    sandbox.terminals = [];
    if (sandbox.desktop === "started") sandbox.desktop = "stopped";
  }
  if (state === "ready") assignWaitingCalls(draft, sandbox, place);
}

/** Assign the sandbox to calls that started before it was ready. */
function assignWaitingCalls(draft: ViewDraft, sandbox: SandboxView, { number }: EventPosition): void {
  for (const id of draft.lastAnswer()?.calls ?? []) {
    const seen = draft.view.calls[id];
    if (seen?.progress !== "running" || seen.sandbox !== null || seen.kind !== sandbox.kind) continue;
    const call = draft.call(id);
    if (!call) continue;
    call.sandbox = sandbox.id;
    setAttention(draft, sandbox.id, viewForTool(call.tool), number);
  }
}

export function applyDesktopEvent(draft: ViewDraft, data: SessionDesktop, place: EventPosition): void {
  const sandbox = findOrAddSandbox(draft, data.sandbox_id, data.kind);
  if (data.state === "stopped") {
    sandbox.desktop = "stopped";
    sandbox.holder = null;
    return;
  }
  if (data.state === "taken") sandbox.holder = data.by ?? "?";
  if (data.state === "handed_back") sandbox.holder = null;
  sandbox.desktop = "started";
  setAttention(draft, sandbox.id, "desktop", place.number);
}

export function applyTerminalEvent(draft: ViewDraft, data: SessionTerminal, place: EventPosition): void {
  const sandbox = findOrAddSandbox(draft, data.sandbox_id, data.kind);
  const others = sandbox.terminals.filter((each) => each !== data.name);
  if (data.state === "closed") {
    sandbox.terminals = others;
    return;
  }
  if (others.length === sandbox.terminals.length) sandbox.terminals = [...others, data.name];
  setAttention(draft, sandbox.id, "terminal", place.number);
}

export function applyScreenEvent(draft: ViewDraft, data: { kind: string; sandbox_id: string }): void {
  const sandbox = findOrAddSandbox(draft, data.sandbox_id, data.kind);
  sandbox.screen += 1;
  sandbox.desktop = "started";
}

export function applyFileEvent(draft: ViewDraft, data: SessionFile, place: EventPosition): void {
  // Files saved by the session itself are in no sandbox.
  if (!data.sandbox_id) return;
  const sandbox = findOrAddSandbox(draft, data.sandbox_id, data.kind ?? "");
  sandbox.files = draft.list(sandbox.files);
  const before = sandbox.files.findIndex((each) => each.path === data.path);
  if (before >= 0) sandbox.files.splice(before, 1);
  sandbox.files.push({ path: data.path, size: data.size ?? null, at: place.at });
  if (!hasOtherRunningCall(draft, sandbox.id)) setAttention(draft, sandbox.id, "files", place.number);
}

/** Whether a running call uses another view of the sandbox: a command that writes files is still a command. */
function hasOtherRunningCall(draft: ViewDraft, sandbox: string): boolean {
  return (draft.lastAnswer()?.calls ?? []).some((id) => {
    const call = draft.view.calls[id];
    return call?.progress === "running" && call.sandbox === sandbox && viewForTool(call.tool) !== "files";
  });
}
