/** The rules of a chat in words. */

import type { Schema } from "@/api/types";

export type Rule = Schema<"Rule-Output">;

/** The tool, and the kind if it is bound to one; null for any. */
export function toolOf(rule: Rule): string | null {
  if (rule.kind === "*") return rule.tool === "*" ? null : rule.tool;
  return rule.tool === "*" ? `${rule.kind}: *` : `${rule.kind}: ${rule.tool}`;
}

/** What its arguments must be; null for anything. */
export function argumentsOf(rule: Rule): string | null {
  const pairs = Object.entries(rule.arguments).map(([name, pattern]) => `${name} = ${pattern}`);
  if (pairs.length === 0) return rule.exact ? "()" : null;
  return pairs.join(", ") + (rule.exact ? "" : ", …");
}
