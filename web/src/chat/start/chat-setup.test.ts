import { describe, expect, it } from "vitest";
import { type ChatSetup, initialChatSetup, startSessionRequestBody } from "./chat-setup";

type Facts = Parameters<typeof initialChatSetup>[0];

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
    refusedKeys: {},
  },
  kinds: [
    { name: "code", built: false },
    { name: "browser", built: true },
    { name: "linux", built: true },
  ],
  defaultKinds: ["code"],
};

describe("a new chat", () => {
  it("starts with the server's defaults", () => {
    expect(initialChatSetup({ ...FACTS, kinds: [{ name: "code", built: true }] }, null)).toEqual({
      agent: "langgraph",
      model: "large",
      kinds: ["code"],
      ask: true,
      network: null,
    });
  });

  it("uses a built kind if the default is not built", () => {
    expect(initialChatSetup(FACTS, null).kinds).toEqual(["linux"]);
    expect(initialChatSetup({ ...FACTS, kinds: [{ name: "code", built: false }] }, null).kinds).toEqual(["code"]);
  });

  it("keeps the last choice if still available", () => {
    const network = { choice: "own", rules: "allow a.org" } as const;
    const last = { agent: "codex", model: "small", kinds: ["browser", "gone"], ask: false, network };
    expect(initialChatSetup(FACTS, last)).toEqual({
      agent: "langgraph",
      model: "small",
      kinds: ["browser"],
      ask: false,
      network,
    });
    expect(initialChatSetup(FACTS, { kinds: [] }).kinds).toEqual([]);
    expect(initialChatSetup(FACTS, { kinds: ["gone"] }).kinds).toEqual(["linux"]);
  });

  it("keeps a typed model that matches a pattern, never a pattern", () => {
    expect(initialChatSetup(FACTS, { model: "gpt-6" }).model).toBe("gpt-6");
    expect(initialChatSetup(FACTS, { model: "gpt-*" }).model).toBe("large");
    expect(initialChatSetup(FACTS, { model: "gone" }).model).toBe("large");
  });

  it("sends the network only if one is chosen", async () => {
    const networkOf = async (network: ChatSetup["network"]) =>
      (await startSessionRequestBody({ ...initialChatSetup(FACTS, null), network })).network;
    expect(await networkOf(null)).toBeUndefined();
    expect(await networkOf({ choice: "git", rules: "" })).toBe("git");
    expect(await networkOf({ choice: "own", rules: "allow a.org\n" })).toEqual(["allow a.org"]);
  });

  it("asks unless turned off, then in no sandbox", async () => {
    const setup = { ...initialChatSetup(FACTS, null), kinds: ["code", "linux"] };
    expect((await startSessionRequestBody(setup)).policy).toBeNull();
    expect((await startSessionRequestBody({ ...setup, ask: false })).policy).toEqual({
      rules: [],
      allow_all: ["code", "linux"],
    });
  });
});
