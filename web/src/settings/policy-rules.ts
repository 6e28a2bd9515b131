/** Text of a chat's policy rules. */

import type { Schema } from "@/api/types";

export type PolicyRule = Schema<"PolicyRule">;

/** Tool, with the kind if limited to one; null for any. */
export function ruleTool(rule: PolicyRule): string | null {
  if (rule.kind === "*") return rule.tool === "*" ? null : rule.tool;
  return rule.tool === "*" ? `${rule.kind}: *` : `${rule.kind}: ${rule.tool}`;
}

/** Argument patterns; null for any. */
export function ruleArguments(rule: PolicyRule): string | null {
  const pairs = Object.entries(rule.arguments).map(([name, pattern]) => `${name} = ${pattern}`);
  if (pairs.length === 0) return rule.exact ? "()" : null;
  return pairs.join(", ") + (rule.exact ? "" : ", …");
}
