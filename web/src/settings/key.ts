/** What the console reads out of a key, and how a new one is asked for. */

import type { Schema } from "@/api/types";
import { amount } from "@/ui/Time";

export type Key = Schema<"KeySaid">;
export type Scope = Schema<"Scope">;

export const SCOPES: Scope[] = [
  "sessions:read",
  "sessions:write",
  "runs:read",
  "runs:write",
  "sandboxes:read",
  "sandboxes:write",
  "llm:use",
  "llm:read",
  "images:write",
  "keys:admin",
  "tenant:all",
  "admin",
];

export function stateOf(key: Key, now: Date): "works" | "expired" | "revoked" {
  if (key.revokedAt) return "revoked";
  return key.expiresAt && new Date(key.expiresAt) <= now ? "expired" : "works";
}

/** What is left of its budget, in words; null without one. */
export function budgetOf(
  key: Key,
  language: string,
  t: (key: string, values: Record<string, string>) => string,
): string | null {
  const { budget, left } = key;
  if (!budget) return null;
  const parts: string[] = [];
  for (const what of ["requests", "tokens", "cost"] as const) {
    const whole = budget[what];
    if (whole === null || whole === undefined) continue;
    const rest = left?.[what] ?? whole;
    const say = (value: number) => (what === "cost" ? `$${value}` : amount(value, language));
    parts.push(t(`settings.keys.left.${what}`, { left: say(rest), whole: say(whole) }));
  }
  return parts.join(" · ") || null;
}

export interface Wish {
  name: string;
  scopes: ReadonlySet<Scope>;
  /** Days until it stops working; empty for never. */
  days: string;
  /** Names with `*`, with commas or spaces between them. */
  models: string;
  requests: string;
  tokens: string;
  cost: string;
}

export const BLANK: Wish = {
  name: "",
  scopes: new Set<Scope>(["sessions:write", "sandboxes:read"]),
  days: "90",
  models: "",
  requests: "",
  tokens: "",
  cost: "",
};

export function bodyOf(wish: Wish, now: Date): Partial<Schema<"KeyBody">> {
  const body: Partial<Schema<"KeyBody">> = { name: wish.name.trim(), scopes: [...wish.scopes] };
  if (wish.days) body.expiresAt = new Date(now.getTime() + Number(wish.days) * 86_400_000).toISOString();
  const models = wish.models.split(/[\s,]+/).filter(Boolean);
  if (models.length > 0) body.models = models;
  const budget: Schema<"BudgetBody"> = {};
  for (const what of ["requests", "tokens", "cost"] as const) if (wish[what].trim()) budget[what] = Number(wish[what]);
  if (Object.keys(budget).length > 0) body.budget = budget;
  return body;
}

/** Whether it bounds what is asked of models, which takes the scope for that. */
export function needsModels(wish: Wish): boolean {
  const bounded = [wish.models, wish.requests, wish.tokens, wish.cost].some((text) => text.trim());
  return bounded && !wish.scopes.has("llm:use") && !wish.scopes.has("admin");
}

export function isAmount(text: string, whole: boolean): boolean {
  return !text.trim() || (whole ? /^[1-9]\d*$/ : /^(?!0*\.?0*$)\d+(\.\d+)?$/).test(text.trim());
}
