import { describe, expect, it } from "vitest";
import { BLANK, bodyOf, budgetOf, isAmount, type Key, needsModels, stateOf } from "./key";

const now = new Date("2026-01-01T00:00:00Z");
const key: Key = {
  id: "key-1",
  name: "a",
  tenant: "t",
  scopes: ["llm:use"],
  prefix: "pdk_a",
  createdAt: "2025-01-01T00:00:00Z",
};

describe("keys", () => {
  it("work until they are revoked or expire", () => {
    expect(stateOf(key, now)).toBe("works");
    expect(stateOf({ ...key, expiresAt: "2026-01-01T00:00:00Z" }, now)).toBe("expired");
    expect(stateOf({ ...key, expiresAt: "2025-01-01T00:00:00Z", revokedAt: "2025-01-01T00:00:00Z" }, now)).toBe(
      "revoked",
    );
  });
  it("say what is left of a budget", () => {
    const t = (name: string, values: object) => `${name.split(".").pop()} ${Object.values(values).join("/")}`;
    expect(budgetOf(key, "en", t)).toBeNull();
    const spent = { ...key, budget: { requests: 10, cost: 2 }, left: { requests: 0, cost: 1.5 } };
    expect(budgetOf(spent, "en", t)).toBe("requests 0/10 · cost $1.5/$2");
  });
  it("are asked for with what was filled in, and nothing else", () => {
    const wish = { ...BLANK, name: " laptop ", days: "", scopes: new Set(["llm:use"] as const) };
    expect(bodyOf(wish, now)).toEqual({ name: "laptop", scopes: ["llm:use"] });
    expect(bodyOf({ ...wish, days: "1", models: "gpt-*, claude-*", tokens: "1000" }, now)).toEqual({
      name: "laptop",
      scopes: ["llm:use"],
      expiresAt: "2026-01-02T00:00:00.000Z",
      models: ["gpt-*", "claude-*"],
      budget: { tokens: 1000 },
    });
  });
  it("need a scope for what they bound", () => {
    expect(needsModels({ ...BLANK, cost: "1" })).toBe(true);
    expect(needsModels({ ...BLANK, cost: "1", scopes: new Set(["admin"] as const) })).toBe(false);
    expect(needsModels(BLANK)).toBe(false);
  });
  it("have budgets that are numbers", () => {
    expect(["", "12"].every((text) => isAmount(text, true))).toBe(true);
    expect(["0", "1.5", "-1", "x"].some((text) => isAmount(text, true))).toBe(false);
    expect(["0.5", "3", ""].every((text) => isAmount(text, false))).toBe(true);
    expect(["0", "0.0", "1.", "x"].some((text) => isAmount(text, false))).toBe(false);
  });
});
