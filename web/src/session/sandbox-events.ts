/** Applies sandbox events to a view. */

import type { SessionDesktop, SessionFile, SessionSandbox, SessionTerminal } from "@/api/session-events";
import { sandboxViewForTool } from "./sandbox-view-for-tool";
import type { AgentAttention, SandboxView } from "./types";
import type { SessionViewDraft } from "./view-draft";

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
function findOrAddSandbox(draft: SessionViewDraft, id: string, kind: string): SandboxView {
  const existing = draft.sandbox(id);
  if (existing) return existing;
  const { sandboxOrder } = draft.view;
  // The starting entry becomes the sandbox, at the same position.
  const starting = kind !== id && kind in draft.view.sandboxes;
  draft.view.sandboxOrder = starting ? sandboxOrder.map((each) => (each === kind ? id : each)) : [...sandboxOrder, id];
  if (starting) delete draft.record("sandboxes")[kind];
  const sandbox = newSandboxView(id, kind);
  draft.setEntry("sandboxes", id, sandbox);
  return sandbox;
}

export function setAgentAttention(
  draft: SessionViewDraft,
  sandbox: string,
  view: AgentAttention["view"],
  number: number,
): void {
  draft.view.attention = { sandbox, view, number };
}

export function applySandboxEvent(draft: SessionViewDraft, data: SessionSandbox, position: EventPosition): void {
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
  if (state === "ready") assignWaitingCalls(draft, sandbox, position);
}

/** Assign the sandbox to calls that started before it was ready. */
function assignWaitingCalls(draft: SessionViewDraft, sandbox: SandboxView, { number, at }: EventPosition): void {
  for (const id of draft.lastAnswer()?.calls ?? []) {
    const current = draft.view.calls[id];
    if (current?.progress !== "running" || current.sandbox !== null || current.kind !== sandbox.kind) continue;
    const call = draft.call(id);
    if (!call) continue;
    call.sandbox = sandbox.id;
    // The start of the sandbox is not part of the call.
    call.runningAt = at;
    setAgentAttention(draft, sandbox.id, sandboxViewForTool(call.tool), number);
  }
}

export function applyDesktopEvent(draft: SessionViewDraft, data: SessionDesktop, position: EventPosition): void {
  const sandbox = findOrAddSandbox(draft, data.sandbox_id, data.kind);
  if (data.state === "stopped") {
    sandbox.desktop = "stopped";
    sandbox.holder = null;
    return;
  }
  if (data.state === "taken") sandbox.holder = data.by ?? "?";
  if (data.state === "handed_back") sandbox.holder = null;
  sandbox.desktop = "started";
  setAgentAttention(draft, sandbox.id, "desktop", position.number);
}

export function applyTerminalEvent(draft: SessionViewDraft, data: SessionTerminal, position: EventPosition): void {
  const sandbox = findOrAddSandbox(draft, data.sandbox_id, data.kind);
  const others = sandbox.terminals.filter((each) => each !== data.name);
  if (data.state === "closed") {
    sandbox.terminals = others;
    return;
  }
  if (others.length === sandbox.terminals.length) sandbox.terminals = [...others, data.name];
  setAgentAttention(draft, sandbox.id, "terminal", position.number);
}

export function applyScreenEvent(draft: SessionViewDraft, data: { kind: string; sandbox_id: string }): void {
  const sandbox = findOrAddSandbox(draft, data.sandbox_id, data.kind);
  sandbox.screen += 1;
  sandbox.desktop = "started";
}

export function applyFileEvent(draft: SessionViewDraft, data: SessionFile, position: EventPosition): void {
  // Files saved by the session itself are in no sandbox.
  if (!data.sandbox_id) return;
  const sandbox = findOrAddSandbox(draft, data.sandbox_id, data.kind ?? "");
  sandbox.files = draft.list(sandbox.files);
  const before = sandbox.files.findIndex((each) => each.path === data.path);
  if (before >= 0) sandbox.files.splice(before, 1);
  sandbox.files.push({ path: data.path, size: data.size ?? null, at: position.at });
  if (!hasOtherRunningCall(draft, sandbox.id)) setAgentAttention(draft, sandbox.id, "files", position.number);
}

/** Whether a running call uses another view of the sandbox: a command that writes files is still a command. */
function hasOtherRunningCall(draft: SessionViewDraft, sandbox: string): boolean {
  return (draft.lastAnswer()?.calls ?? []).some((id) => {
    const call = draft.view.calls[id];
    return call?.progress === "running" && call.sandbox === sandbox && sandboxViewForTool(call.tool) !== "files";
  });
}
