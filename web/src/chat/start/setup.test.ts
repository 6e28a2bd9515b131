import { describe, expect, it } from "vitest";
import { bodyOf, startWith } from "./setup";

type Facts = Parameters<typeof startWith>[0];

const FACTS: Facts = {
  agents: {
    default: "langgraph",
    chat: [
      { name: "agentscope", type: "engine", ready: true },
      { name: "langgraph", type: "engine", ready: true },
      { name: "codex", type: "program", ready: false, missing: "its image" },
    ],
    tasks: [],
  },
  models: {
    items: [
      { name: "small", provider: "p", kind: "openai", script: false },
      { name: "large", provider: "p", kind: "openai", script: false },
    ],
    patterns: ["gpt-*"],
    default: "large",
    real: true,
    demo: false,
    state: "ready",
  },
  kinds: [
    { name: "code", built: false },
    { name: "browser", built: true },
    { name: "linux", built: true },
  ],
  defaultKinds: ["code"],
};

describe("a new chat", () => {
  it("begins with what the server has as its own", () => {
    expect(startWith({ ...FACTS, kinds: [{ name: "code", built: true }] }, null)).toEqual({
      agent: "langgraph",
      model: "large",
      kinds: ["code"],
      ask: true,
    });
  });

  it("takes a computer that is built where the server's own is not", () => {
    expect(startWith(FACTS, null).kinds).toEqual(["linux"]);
    expect(startWith({ ...FACTS, kinds: [{ name: "code", built: false }] }, null).kinds).toEqual(["code"]);
  });

  it("keeps what was chosen last, as far as it is still there", () => {
    const last = { agent: "codex", model: "small", kinds: ["browser", "gone"], ask: false };
    expect(startWith(FACTS, last)).toEqual({ agent: "langgraph", model: "small", kinds: ["browser"], ask: false });
    expect(startWith(FACTS, { kinds: [] }).kinds).toEqual([]);
    expect(startWith(FACTS, { kinds: ["gone"] }).kinds).toEqual(["linux"]);
  });

  it("keeps a typed model that fits a pattern, and never a pattern", () => {
    expect(startWith(FACTS, { model: "gpt-6" }).model).toBe("gpt-6");
    expect(startWith(FACTS, { model: "gpt-*" }).model).toBe("large");
    expect(startWith(FACTS, { model: "gone" }).model).toBe("large");
  });

  it("asks unless that was turned off, and then in none of its computers", () => {
    const setup = { agent: "a", model: "m", kinds: ["code", "linux"], ask: true };
    expect(bodyOf(setup).policy).toBeNull();
    expect(bodyOf({ ...setup, ask: false }).policy).toEqual({ rules: [], allow_all: ["code", "linux"] });
  });
});
