import { describe, expect, it } from "vitest";
import { handOf } from "./input";

const holder = (viewer: string, name: string) => ({ viewer, name, since: "2026-01-01T00:00:00Z" });

describe("handOf", () => {
  it("is the agent's while no person has it", () => {
    expect(handOf(null, "tab-1", "Ada")).toEqual({ who: "agent" });
  });

  it("is mine by the tab, not by the name", () => {
    expect(handOf(holder("tab-1", "local"), "tab-1", "Ada")).toEqual({ who: "me" });
    expect(handOf(holder("tab-2", "Ada"), "tab-1", "Ada")).toEqual({ who: "other", name: "Ada", mine: true });
    expect(handOf(holder("tab-2", "Bob"), "tab-1", "Ada")).toEqual({ who: "other", name: "Bob", mine: false });
  });
});
