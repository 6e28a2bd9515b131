/** What the console reads out of a sandbox. */

import type { Schema } from "@/api/types";
import type { Tone } from "@/ui/Badge";

export type Sandbox = Schema<"SandboxSaid">;
export type State = Schema<"SandboxState">;

export const ALIVE: State[] = ["Pending", "Running", "Pausing", "Paused", "Resuming", "Stopping"];
export const ENDED: State[] = ["Terminated", "Failed"];

export const TONES: Record<State, Tone> = {
  Pending: "info",
  Running: "good",
  Pausing: "neutral",
  Paused: "warning",
  Resuming: "info",
  Stopping: "neutral",
  Terminated: "neutral",
  Failed: "danger",
};

export function kindOf(box: Sandbox): string | null {
  return box.extensions?.["paddock.kind"] ?? null;
}

/** What people call it: its name if it was given one, else its id. */
export function titleOf(box: Sandbox): string {
  return box.metadata.name || box.id;
}

/** What it was made from: an image, or a snapshot, by its name where `snapshots` has one. */
export function originOf(box: Sandbox, snapshots: Record<string, string> = {}): string {
  const { image, snapshotId } = box;
  return image?.uri ?? (snapshotId ? (snapshots[snapshotId] ?? snapshotId) : "");
}

export interface Owner {
  type: "chat" | "run";
  id: string;
  path: string;
}

/** The chat or the run that it was made for. */
export function ownerOf(box: Sandbox): Owner | null {
  const chat = box.metadata.session;
  if (chat) return { type: "chat", id: chat, path: `/chats/${encodeURIComponent(chat)}` };
  const run = box.metadata["paddock.run"];
  if (run) return { type: "run", id: run, path: `/runs/${encodeURIComponent(run)}` };
  return null;
}

const SHOWN_ELSEWHERE = ["name", "session", "paddock.run"];

/** What else was written on it. */
export function labelsOf(box: Sandbox): [string, string][] {
  return Object.entries(box.metadata).filter(([name]) => !SHOWN_ELSEWHERE.includes(name));
}

export type Deed = "pause" | "resume" | "snapshot" | "renew" | "delete";

/** What can be done with it as it is now. */
export function deedsOf(box: Sandbox): Deed[] {
  const { state } = box.status;
  // One that failed stays until somebody deletes it, or for `sandboxes.keep_ended`.
  if (state === "Failed") return ["delete"];
  if (state === "Terminated" || state === "Stopping") return [];
  const deeds: Deed[] = [];
  if (state === "Running") deeds.push("pause");
  if (state === "Paused") deeds.push("resume");
  if (state === "Running" || state === "Paused") deeds.push("snapshot");
  if (box.expiresAt) deeds.push("renew");
  return [...deeds, "delete"];
}

/** An hour more than it has. */
export function anHourMore(box: Sandbox, now: Date): string {
  const until = Math.max(now.getTime(), box.expiresAt ? new Date(box.expiresAt).getTime() : 0);
  return new Date(until + 3_600_000).toISOString();
}

export interface Filter {
  state: string;
  kind: string;
  text: string;
}

/** The states to ask the server for. */
export function statesOf(chosen: string): State[] {
  if (chosen === "all") return [];
  if (chosen === "ended") return ENDED;
  return chosen && chosen !== "alive" ? [chosen as State] : ALIVE;
}

export function passes(box: Sandbox, { kind, text }: Filter): boolean {
  if (kind && (kindOf(box) ?? "") !== kind) return false;
  const words = text.trim().toLowerCase();
  if (!words) return true;
  const said = [box.id, originOf(box), kindOf(box) ?? "", ...Object.entries(box.metadata).flat()];
  return said.join(" ").toLowerCase().includes(words);
}
