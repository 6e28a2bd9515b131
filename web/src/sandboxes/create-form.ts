/** Form for a new sandbox, and the request made from it. */

import type { Schema } from "@/api/types";
import {
  DEFAULT_NETWORK,
  isNetworkDraftEmpty,
  type NetworkDraft,
  policyFromDraft,
} from "@/sandbox-panel/network/network-policy";

export interface CreateSandboxForm {
  /** Empty for none. */
  kind: string;
  /** Empty for the kind's default. */
  image: string;
  snapshot: string;
  name: string;
  cpu: string;
  memory: string;
  /** Seconds; empty for the configured default, `never` for no limit. */
  life: string;
  network: NetworkDraft;
}

export const EMPTY_SANDBOX_FORM: CreateSandboxForm = {
  kind: "",
  image: "",
  snapshot: "",
  name: "",
  cpu: "",
  memory: "",
  life: "",
  network: DEFAULT_NETWORK,
};
export const SANDBOX_LIFETIMES = ["", "1800", "3600", "14400", "86400", "604800", "never"];

export function createSandboxRequestBody(form: CreateSandboxForm): Partial<Schema<"CreateSandboxRequest">> {
  const body: Partial<Schema<"CreateSandboxRequest">> = {};
  if (form.snapshot) body.snapshotId = form.snapshot;
  else if (form.image) body.image = { uri: form.image };
  if (form.kind && !form.snapshot) body.extensions = { "paddock.kind": form.kind };
  if (form.name.trim()) body.name = form.name.trim();
  const limits: Record<string, string> = {};
  if (form.cpu.trim()) limits.cpu = form.cpu.trim();
  if (form.memory.trim()) limits.memory = form.memory.trim();
  if (Object.keys(limits).length > 0) body.resourceLimits = limits;
  if (form.life) body.timeout = form.life === "never" ? null : Number(form.life);
  const network = policyFromDraft(form.network);
  if (network !== undefined) body.network = network;
  return body;
}

/** Names of fields with invalid values. */
export function invalidSandboxFields(form: CreateSandboxForm): Partial<Record<keyof CreateSandboxForm, true>> {
  const found: Partial<Record<keyof CreateSandboxForm, true>> = {};
  if (form.cpu.trim() && !/^\d+(\.\d+)?m?$/.test(form.cpu.trim())) found.cpu = true;
  if (form.memory.trim() && !/^\d+(\.\d+)?([kKMGT]i?)?$/.test(form.memory.trim())) found.memory = true;
  if (form.name.trim() && !/^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/.test(form.name.trim())) found.name = true;
  if (isNetworkDraftEmpty(form.network)) found.network = true;
  return found;
}
