/** The network policy of a task file as a form, and back. */

import {
  choiceOfPolicy,
  type NetworkDraft,
  networkDraftFromPolicy,
  ownRules,
} from "@/sandbox-panel/network/network-policy";

/** Rule texts of a policy in any form that task files may have. */
export function networkDraftFromTask(value: unknown): NetworkDraft {
  const policy = (Array.isArray(value) ? value : value === undefined || value === null ? [] : [value])
    .flatMap(ruleTexts)
    .filter((rule) => rule !== "none");
  // A preset alone may lack `allow`.
  const [only] = policy;
  const choice = policy.length === 1 && only ? choiceOfPolicy([`allow ${only}`]) : "own";
  return choice === "own" ? networkDraftFromPolicy(policy) : { choice, rules: policy.join("\n") };
}

/** Value of the field; undefined for no network, which is the default of tasks. */
export function taskNetworkFromDraft(draft: NetworkDraft): string | string[] | undefined {
  if (draft.choice === "default" || draft.choice === "none") return undefined;
  if (draft.choice !== "own") return draft.choice;
  const rules = ownRules(draft);
  return rules.length > 0 ? rules : undefined;
}

/** Rules of one entry: text, or a mapping such as `{allow: [a.org, b.org], ports: 443}`. */
function ruleTexts(entry: unknown): string[] {
  if (typeof entry !== "object" || entry === null) return [String(entry)];
  const { allow, deny, ports } = entry as Record<string, unknown>;
  const action = deny === undefined ? "allow" : "deny";
  const suffix = asList(ports).join(",");
  return asList(deny ?? allow).map((target) => {
    const host = String(target);
    if (!suffix) return `${action} ${host}`;
    const isBareAddress = host.split(":").length > 2 && !host.includes("[");
    return `${action} ${isBareAddress ? `[${host}]` : host}:${suffix}`;
  });
}

function asList(value: unknown): unknown[] {
  return Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];
}
