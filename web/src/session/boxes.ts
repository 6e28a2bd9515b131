/** The agent's computers: what events tell of them. */

import type { SessionDesktop, SessionFile, SessionSandbox, SessionTerminal } from "@/api/session-events";
import { viewOf } from "./attention";
import type { Draft } from "./draft";
import type { Attention, BoxView } from "./types";

interface Place {
  number: number;
  at: string;
}

function begun(id: string, kind: string): BoxView {
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

/** A box, which is made if nobody has told of it before. */
function known(draft: Draft, id: string, kind: string): BoxView {
  const held = draft.box(id);
  if (held) return held;
  const { boxOrder } = draft.view;
  // What was only starting becomes the box itself, in its place.
  const starting = kind !== id && kind in draft.view.boxes;
  draft.view.boxOrder = starting ? boxOrder.map((each) => (each === kind ? id : each)) : [...boxOrder, id];
  if (starting) delete draft.record("boxes")[kind];
  const box = begun(id, kind);
  draft.put("boxes", id, box);
  return box;
}

export function attend(draft: Draft, sandbox: string, view: Attention["view"], number: number): void {
  draft.view.attention = { sandbox, view, number };
}

export function sandboxTold(draft: Draft, data: SessionSandbox, place: Place): void {
  const { kind, state } = data;
  const box = known(draft, data.sandbox_id || kind, kind);
  box.state = state;
  box.reason = data.reason ?? null;
  box.building = (state === "starting" && data.building) || null;
  if (state === "broken" || state === "released") {
    box.holder = null;
    box.terminals = [];
    if (box.desktop === "started") box.desktop = "stopped";
  }
  if (state === "ready") found(draft, box, place);
}

/** Calls that began before their box was there now have one. */
function found(draft: Draft, box: BoxView, { number }: Place): void {
  for (const id of draft.lastAnswer()?.calls ?? []) {
    const seen = draft.view.calls[id];
    if (seen?.progress !== "running" || seen.sandbox !== null || seen.kind !== box.kind) continue;
    const call = draft.call(id);
    if (!call) continue;
    call.sandbox = box.id;
    attend(draft, box.id, viewOf(call.tool), number);
  }
}

export function desktopTold(draft: Draft, data: SessionDesktop, place: Place): void {
  const box = known(draft, data.sandbox_id, data.kind);
  if (data.state === "stopped") {
    box.desktop = "stopped";
    box.holder = null;
    return;
  }
  if (data.state === "taken") box.holder = data.by ?? "?";
  if (data.state === "handed_back") box.holder = null;
  box.desktop = "started";
  attend(draft, box.id, "desktop", place.number);
}

export function terminalTold(draft: Draft, data: SessionTerminal, place: Place): void {
  const box = known(draft, data.sandbox_id, data.kind);
  const others = box.terminals.filter((each) => each !== data.name);
  if (data.state === "closed") {
    box.terminals = others;
    return;
  }
  if (others.length === box.terminals.length) box.terminals = [...others, data.name];
  attend(draft, box.id, "terminal", place.number);
}

export function screenTold(draft: Draft, data: { kind: string; sandbox_id: string }): void {
  const box = known(draft, data.sandbox_id, data.kind);
  box.screen += 1;
  box.desktop = "started";
}

export function fileTold(draft: Draft, data: SessionFile, place: Place): void {
  // What the session itself keeps is in no box.
  if (!data.sandbox_id) return;
  const box = known(draft, data.sandbox_id, data.kind ?? "");
  box.files = draft.list(box.files);
  const before = box.files.findIndex((each) => each.path === data.path);
  if (before >= 0) box.files.splice(before, 1);
  box.files.push({ path: data.path, size: data.size ?? null, at: place.at });
  if (!elsewhere(draft, box.id)) attend(draft, box.id, "files", place.number);
}

/** Whether a call is under way in the box that another view shows: a command that writes files is still a command. */
function elsewhere(draft: Draft, sandbox: string): boolean {
  return (draft.lastAnswer()?.calls ?? []).some((id) => {
    const call = draft.view.calls[id];
    return call?.progress === "running" && call.sandbox === sandbox && viewOf(call.tool) !== "files";
  });
}
