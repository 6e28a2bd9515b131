/** What somebody changes about a chat: only that is sent. */

import type { Policy } from "@/api/types";
import type { SessionView } from "@/session/types";

export interface Draft {
  model: string;
  kinds: string[];
  policy: Policy;
  instructions: string;
  /** As it is typed; empty is none. */
  budget: string;
}

type Settings = Pick<SessionView, "model" | "kinds" | "policy" | "instructions" | "budget">;

export function draftOf(view: Settings): Draft {
  return {
    model: view.model,
    kinds: [...view.kinds],
    policy: view.policy ?? { rules: [], allow_all: [] },
    instructions: view.instructions,
    budget: view.budget === null ? "" : String(view.budget),
  };
}

export interface Patch {
  model?: string;
  kinds?: string[];
  policy?: Policy;
  instructions?: string;
  budget?: number | null;
}

export function patchOf(view: Settings, draft: Draft): Patch {
  const before = draftOf(view);
  const patch: Patch = {};
  const same = (name: keyof Draft) => JSON.stringify(before[name]) === JSON.stringify(draft[name]);
  if (!same("model")) patch.model = draft.model;
  if (!same("kinds")) patch.kinds = draft.kinds;
  if (!same("policy")) patch.policy = draft.policy;
  if (!same("instructions")) patch.instructions = draft.instructions;
  if (before.budget !== draft.budget.trim()) patch.budget = draft.budget.trim() ? Number(draft.budget) : null;
  return patch;
}
