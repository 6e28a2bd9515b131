/** Display values of API keys, and the form for a new one. */

import type { Schema } from "@/api/types";
import { formatAmount } from "@/ui/format/formats";

export type ApiKey = Schema<"KeyResponse">;
export type ApiKeyScope = Schema<"Scope">;

export const API_KEY_SCOPES: ApiKeyScope[] = [
  "sessions:read",
  "sessions:write",
  "runs:read",
  "runs:write",
  "sandboxes:read",
  "sandboxes:write",
  "llm:use",
  "llm:read",
  "mcp:use",
  "mcp:write",
  "images:write",
  "metrics:read",
  "keys:admin",
  "tenant:all",
  "admin",
];

export function apiKeyState(key: ApiKey, now: Date): "works" | "expired" | "revoked" {
  if (key.revokedAt) return "revoked";
  return key.expiresAt && new Date(key.expiresAt) <= now ? "expired" : "works";
}

/** Remaining budget as text; null without one. */
export function formatKeyBudget(
  key: ApiKey,
  language: string,
  t: (key: string, values: Record<string, string>) => string,
): string | null {
  const { budget, left } = key;
  if (!budget) return null;
  const parts: string[] = [];
  for (const limit of ["requests", "tokens", "cost"] as const) {
    const total = budget[limit];
    if (total === null || total === undefined) continue;
    const rest = left?.[limit] ?? total;
    const formatLimit = (value: number) => (limit === "cost" ? `$${value}` : formatAmount(value, language));
    parts.push(t(`settings.keys.left.${limit}`, { left: formatLimit(rest), whole: formatLimit(total) }));
  }
  return parts.join(" · ") || null;
}

export interface ApiKeyForm {
  name: string;
  /** Tenant of the key; empty for one's own. */
  tenant: string;
  scopes: ReadonlySet<ApiKeyScope>;
  /** Days until it expires; empty for never. */
  days: string;
  /** Patterns with `*`, separated by commas or spaces. */
  models: string;
  requests: string;
  tokens: string;
  cost: string;
}

export const EMPTY_KEY_FORM: ApiKeyForm = {
  name: "",
  tenant: "",
  scopes: new Set<ApiKeyScope>(["sessions:write", "sandboxes:read"]),
  days: "90",
  models: "",
  requests: "",
  tokens: "",
  cost: "",
};

export function createKeyRequestBody(form: ApiKeyForm, now: Date): Partial<Schema<"CreateKeyRequest">> {
  const body: Partial<Schema<"CreateKeyRequest">> = { name: form.name.trim(), scopes: [...form.scopes] };
  const tenant = form.tenant.trim();
  if (tenant) body.tenant = tenant;
  if (form.days) body.expiresAt = new Date(now.getTime() + Number(form.days) * 86_400_000).toISOString();
  const models = form.models.split(/[\s,]+/).filter(Boolean);
  if (models.length > 0) body.models = models;
  const budget: Schema<"KeyBudgetRequest"> = {};
  for (const limit of ["requests", "tokens", "cost"] as const)
    if (form[limit].trim()) budget[limit] = Number(form[limit]);
  if (Object.keys(budget).length > 0) body.budget = budget;
  return body;
}

/** Whether a name is a valid tenant; empty means one's own. */
export function isTenantName(text: string): boolean {
  return !text.trim() || /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(text.trim());
}

/** Whether the form limits model use without granting the scope for it. */
export function lacksModelScope(form: ApiKeyForm): boolean {
  const bounded = [form.models, form.requests, form.tokens, form.cost].some((text) => text.trim());
  return bounded && !form.scopes.has("llm:use") && !form.scopes.has("admin");
}

export function isPositiveNumber(text: string, wholeNumber: boolean): boolean {
  return !text.trim() || (wholeNumber ? /^[1-9]\d*$/ : /^(?!0*\.?0*$)\d+(\.\d+)?$/).test(text.trim());
}
