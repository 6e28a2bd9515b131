/** Network policies: presets, short descriptions, and the form that chooses one. */

import i18next from "i18next";
import { ApiError } from "@/api/client";
import type { Schema } from "@/api/types";
import { errorText } from "@/ui/format/error-text";
import { translateServerText } from "@/ui/format/server-text";

export const NETWORK_PRESETS = ["packages", "git", "web", "open"] as const;
export type NetworkPreset = (typeof NETWORK_PRESETS)[number];
/** `default` leaves the choice to the kind and the server. */
export type NetworkChoice = "default" | "none" | NetworkPreset | "own";
export const NETWORK_CHOICES: readonly NetworkChoice[] = ["default", "none", ...NETWORK_PRESETS, "own"];

export interface NetworkDraft {
  choice: NetworkChoice;
  /** Own rules, one per line. */
  rules: string;
}

export const DEFAULT_NETWORK: NetworkDraft = { choice: "default", rules: "" };

/** Preset of a rule such as `allow web`. */
export function presetOfRule(rule: string): NetworkPreset | null {
  return NETWORK_PRESETS.find((preset) => rule === `allow ${preset}`) ?? null;
}

export function choiceOfPolicy(policy: readonly string[]): NetworkChoice {
  const [first] = policy;
  if (first === undefined) return "none";
  return (policy.length === 1 && presetOfRule(first)) || "own";
}

export function networkDraftFromPolicy(policy: readonly string[]): NetworkDraft {
  return { choice: choiceOfPolicy(policy), rules: policy.join("\n") };
}

/** Change the choice. Own rules start with the rules of the choice before. */
export function chooseNetwork(
  draft: NetworkDraft,
  choice: NetworkChoice,
  defaultPolicy: readonly string[] = [],
): NetworkDraft {
  if (choice !== "own") return { ...draft, choice };
  const preset = NETWORK_PRESETS.find((each) => each === draft.choice);
  const before = preset ? `allow ${preset}` : draft.choice === "default" ? defaultPolicy.join("\n") : "";
  return { choice, rules: draft.rules.trim() ? draft.rules : before };
}

export function ownRules(draft: NetworkDraft): string[] {
  return draft.rules
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
}

/** Whether own rules were chosen, but there are none. */
export function isNetworkDraftEmpty(draft: NetworkDraft): boolean {
  return draft.choice === "own" && ownRules(draft).length === 0;
}

/** Policy as requests contain it; undefined for the default. */
export function policyFromDraft(draft: NetworkDraft): string | string[] | undefined {
  if (draft.choice === "default") return undefined;
  return draft.choice === "own" ? ownRules(draft) : draft.choice;
}

/** A policy in short words: "Package indexes + 2 own rules". */
export function describePolicy(policy: readonly string[]): string {
  const presets = policy.flatMap((rule) => presetOfRule(rule) ?? []);
  const names = [...new Set(presets)].map((preset) => i18next.t(`chat.networks.${preset}`));
  const others = policy.length - presets.length;
  if (others > 0) names.push(i18next.t("network.ownRules", { count: others }));
  return names.join(" + ") || i18next.t("chat.networks.none");
}

/** Policy of sandboxes that request none; null if it differs between the kinds. */
export function defaultNetworkOfKinds(
  kinds: readonly Pick<Schema<"KindResponse">, "name" | "network">[],
  chosen: readonly string[],
): readonly string[] | null {
  const policies = kinds.filter((kind) => chosen.includes(kind.name)).map((kind) => kind.network);
  const [first] = policies;
  return first && policies.every((policy) => policy.join() === first.join()) ? first : null;
}

/** Whether a request was refused for its network policy. */
export function isNetworkError(error: unknown): boolean {
  return (
    error instanceof ApiError && error.code === "INVALID_INPUT" && /^network: |\(network\.\w*bound/.test(error.message)
  );
}

/** Text of an error for the field of the policy. */
export function networkErrorText(error: unknown): string {
  if (!(error instanceof ApiError) || error.code !== "INVALID_INPUT") return errorText(error);
  return translateServerText(error.message.replace(/^(policy|network): /, ""));
}
