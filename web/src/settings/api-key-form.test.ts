import { describe, expect, it } from "vitest";
import {
  type ApiKey,
  apiKeyState,
  createKeyRequestBody,
  EMPTY_KEY_FORM,
  formatKeyBudget,
  isPositiveNumber,
  isTenantName,
  lacksModelScope,
} from "./api-key-form";

const now = new Date("2026-01-01T00:00:00Z");
const key: ApiKey = {
  id: "key-1",
  name: "a",
  tenant: "t",
  scopes: ["llm:use"],
  prefix: "pdk_a",
  createdAt: "2025-01-01T00:00:00Z",
};

describe("keys", () => {
  it("work until they are revoked or expire", () => {
    expect(apiKeyState(key, now)).toBe("works");
    expect(apiKeyState({ ...key, expiresAt: "2026-01-01T00:00:00Z" }, now)).toBe("expired");
    expect(apiKeyState({ ...key, expiresAt: "2025-01-01T00:00:00Z", revokedAt: "2025-01-01T00:00:00Z" }, now)).toBe(
      "revoked",
    );
  });
  it("show the remaining budget", () => {
    const t = (name: string, values: object) => `${name.split(".").pop()} ${Object.values(values).join("/")}`;
    expect(formatKeyBudget(key, "en", t)).toBeNull();
    const spent = { ...key, budget: { requests: 10, cost: 2 }, left: { requests: 0, cost: 1.5 } };
    expect(formatKeyBudget(spent, "en", t)).toBe("requests 0/10 · cost $1.5/$2");
  });
  it("are requested with the filled-in fields only", () => {
    const form = { ...EMPTY_KEY_FORM, name: " laptop ", days: "", scopes: new Set(["llm:use"] as const) };
    expect(createKeyRequestBody(form, now)).toEqual({ name: "laptop", scopes: ["llm:use"] });
    expect(createKeyRequestBody({ ...form, days: "1", models: "gpt-*, claude-*", tokens: "1000" }, now)).toEqual({
      name: "laptop",
      scopes: ["llm:use"],
      expiresAt: "2026-01-02T00:00:00.000Z",
      models: ["gpt-*", "claude-*"],
      budget: { tokens: 1000 },
    });
  });
  it("belong to another tenant only if it is named", () => {
    const form = { ...EMPTY_KEY_FORM, name: "ann", tenant: " team-a " };
    expect(createKeyRequestBody(form, now).tenant).toBe("team-a");
    expect(createKeyRequestBody({ ...form, tenant: " " }, now)).not.toHaveProperty("tenant");
    expect(["", "team-a", "a.b_c", "-a", "a b", "租户"].map(isTenantName)).toEqual([
      true,
      true,
      true,
      false,
      false,
      false,
    ]);
  });
  it("need the model scope for model limits", () => {
    expect(lacksModelScope({ ...EMPTY_KEY_FORM, cost: "1" })).toBe(true);
    expect(lacksModelScope({ ...EMPTY_KEY_FORM, cost: "1", scopes: new Set(["admin"] as const) })).toBe(false);
    expect(lacksModelScope(EMPTY_KEY_FORM)).toBe(false);
  });
  it("accept only numbers as budgets", () => {
    expect(["", "12"].every((text) => isPositiveNumber(text, true))).toBe(true);
    expect(["0", "1.5", "-1", "x"].some((text) => isPositiveNumber(text, true))).toBe(false);
    expect(["0.5", "3", ""].every((text) => isPositiveNumber(text, false))).toBe(true);
    expect(["0", "0.0", "1.", "x"].some((text) => isPositiveNumber(text, false))).toBe(false);
  });
});
