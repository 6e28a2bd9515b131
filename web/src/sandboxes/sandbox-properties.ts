/** Display values of a sandbox. */

import type { Schema } from "@/api/types";
import type { Tone } from "@/ui/controls/Badge";

export type Sandbox = Schema<"SandboxResponse">;
export type SandboxState = Schema<"SandboxState">;

export const LIVE_STATES: SandboxState[] = ["Pending", "Running", "Pausing", "Paused", "Resuming", "Stopping"];
export const ENDED_STATES: SandboxState[] = ["Terminated", "Failed"];

export const STATE_TONES: Record<SandboxState, Tone> = {
  Pending: "info",
  Running: "good",
  Pausing: "neutral",
  Paused: "warning",
  Resuming: "info",
  Stopping: "neutral",
  Terminated: "neutral",
  Failed: "danger",
};

export function sandboxKind(sandbox: Sandbox): string | null {
  return sandbox.extensions?.["paddock.kind"] ?? null;
}

/** Name of the sandbox, else its id. */
export function sandboxTitle(sandbox: Sandbox): string {
  return sandbox.metadata.name || sandbox.id;
}

/** Image or snapshot it was created from; a snapshot by name if `snapshots` has it. */
export function sandboxOrigin(sandbox: Sandbox, snapshots: Record<string, string> = {}): string {
  const { image, snapshotId } = sandbox;
  return image?.uri ?? (snapshotId ? (snapshots[snapshotId] ?? snapshotId) : "");
}

export interface SandboxOwner {
  type: "chat" | "run";
  id: string;
  path: string;
}

/** Chat or run that the sandbox was created for. */
export function sandboxOwner(sandbox: Sandbox): SandboxOwner | null {
  const chat = sandbox.metadata.session;
  if (chat) return { type: "chat", id: chat, path: `/chats/${encodeURIComponent(chat)}` };
  const run = sandbox.metadata["paddock.run"];
  if (run) return { type: "run", id: run, path: `/runs/${encodeURIComponent(run)}` };
  return null;
}

const SYSTEM_LABELS = ["name", "session", "paddock.run"];

/** Labels set by users. */
export function sandboxUserLabels(sandbox: Sandbox): [string, string][] {
  return Object.entries(sandbox.metadata).filter(([name]) => !SYSTEM_LABELS.includes(name));
}

export type SandboxAction = "pause" | "resume" | "snapshot" | "renew" | "delete";

/** Actions available in the current state. */
export function availableSandboxActions(sandbox: Sandbox): SandboxAction[] {
  const { state } = sandbox.status;
  // A failed sandbox stays until it is deleted, or for `sandboxes.keep_ended`.
  if (state === "Failed") return ["delete"];
  if (state === "Terminated" || state === "Stopping") return [];
  const actions: SandboxAction[] = [];
  if (state === "Running") actions.push("pause");
  if (state === "Paused") actions.push("resume");
  if (state === "Running" || state === "Paused") actions.push("snapshot");
  if (sandbox.expiresAt) actions.push("renew");
  return [...actions, "delete"];
}

/** Expiry one hour later than now set. */
export function extendedExpiry(sandbox: Sandbox, now: Date): string {
  const until = Math.max(now.getTime(), sandbox.expiresAt ? new Date(sandbox.expiresAt).getTime() : 0);
  return new Date(until + 3_600_000).toISOString();
}

export interface SandboxFilter {
  state: string;
  kind: string;
  text: string;
}

/** States to request from the server. */
export function sandboxStatesForFilter(chosen: string): SandboxState[] {
  if (chosen === "all") return [];
  if (chosen === "ended") return ENDED_STATES;
  return chosen && chosen !== "alive" ? [chosen as SandboxState] : LIVE_STATES;
}

export function matchesSandboxFilter(sandbox: Sandbox, { kind, text }: SandboxFilter): boolean {
  if (kind && (sandboxKind(sandbox) ?? "") !== kind) return false;
  const query = text.trim().toLowerCase();
  if (!query) return true;
  const searchedFields = [
    sandbox.id,
    sandboxOrigin(sandbox),
    sandboxKind(sandbox) ?? "",
    ...Object.entries(sandbox.metadata).flat(),
  ];
  return searchedFields.join(" ").toLowerCase().includes(query);
}
