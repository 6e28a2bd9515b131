/** Changes of a chat's settings; only changed fields are sent. */

import type { Policy } from "@/api/types";
import {
  DEFAULT_NETWORK,
  type NetworkDraft,
  networkDraftFromPolicy,
  policyFromDraft,
} from "@/sandbox-panel/network/network-policy";
import type { SessionView } from "@/session/types";

export interface SessionSettingsDraft {
  model: string;
  kinds: string[];
  policy: Policy;
  instructions: string;
  /** Text of the field; empty means none. */
  budget: string;
  network: NetworkDraft;
}

type ChatSettings = Pick<SessionView, "model" | "kinds" | "policy" | "instructions" | "budget" | "network">;

export function sessionSettingsDraft(view: ChatSettings): SessionSettingsDraft {
  return {
    model: view.model,
    kinds: [...view.kinds],
    policy: view.policy ?? { rules: [], allow_all: [] },
    instructions: view.instructions,
    budget: view.budget === null ? "" : String(view.budget),
    network: view.network ? networkDraftFromPolicy(view.network) : DEFAULT_NETWORK,
  };
}

export interface SessionSettingsPatch {
  model?: string;
  kinds?: string[];
  policy?: Policy;
  instructions?: string;
  budget?: number | null;
  /** Null for the default of each kind. */
  network?: string | string[] | null;
}

export function sessionSettingsPatch(view: ChatSettings, draft: SessionSettingsDraft): SessionSettingsPatch {
  const before = sessionSettingsDraft(view);
  const patch: SessionSettingsPatch = {};
  const same = (name: keyof SessionSettingsDraft) => JSON.stringify(before[name]) === JSON.stringify(draft[name]);
  if (!same("model")) patch.model = draft.model;
  if (!same("kinds")) patch.kinds = draft.kinds;
  if (!same("policy")) patch.policy = draft.policy;
  if (!same("instructions")) patch.instructions = draft.instructions;
  if (before.budget !== draft.budget.trim()) patch.budget = draft.budget.trim() ? Number(draft.budget) : null;
  if (!same("network")) patch.network = policyFromDraft(draft.network) ?? null;
  return patch;
}
