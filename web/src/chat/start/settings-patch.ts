/** Changes of a chat's settings; only changed fields are sent. */

import type { Policy } from "@/api/types";
import type { SessionView } from "@/session/types";

export interface SettingsDraft {
  model: string;
  kinds: string[];
  policy: Policy;
  instructions: string;
  /** Text of the field; empty means none. */
  budget: string;
}

type ChatSettings = Pick<SessionView, "model" | "kinds" | "policy" | "instructions" | "budget">;

export function draftFromSettings(view: ChatSettings): SettingsDraft {
  return {
    model: view.model,
    kinds: [...view.kinds],
    policy: view.policy ?? { rules: [], allow_all: [] },
    instructions: view.instructions,
    budget: view.budget === null ? "" : String(view.budget),
  };
}

export interface SettingsPatch {
  model?: string;
  kinds?: string[];
  policy?: Policy;
  instructions?: string;
  budget?: number | null;
}

export function settingsPatch(view: ChatSettings, draft: SettingsDraft): SettingsPatch {
  const before = draftFromSettings(view);
  const patch: SettingsPatch = {};
  const same = (name: keyof SettingsDraft) => JSON.stringify(before[name]) === JSON.stringify(draft[name]);
  if (!same("model")) patch.model = draft.model;
  if (!same("kinds")) patch.kinds = draft.kinds;
  if (!same("policy")) patch.policy = draft.policy;
  if (!same("instructions")) patch.instructions = draft.instructions;
  if (before.budget !== draft.budget.trim()) patch.budget = draft.budget.trim() ? Number(draft.budget) : null;
  return patch;
}
