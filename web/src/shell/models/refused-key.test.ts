import { expect, it } from "vitest";
import type { ServerFacts } from "../status/server-facts";
import { refusedKeyOfModel } from "./refused-key";

const item = (name: string, provider: string) => ({ name, provider, kind: provider, script: false });
const models: ServerFacts["models"] = {
  items: [item("claude-x", "anthropic"), item("gpt-x", "openai")],
  patterns: ["claude-*", "gpt-*"],
  real: true,
  demo: false,
  state: "ready",
  refusedKeys: { anthropic: "ANTHROPIC_API_KEY" },
};

it("is that of the model's provider only", () => {
  expect(refusedKeyOfModel(models, "claude-x")).toEqual({ name: "anthropic", where: "ANTHROPIC_API_KEY" });
  expect(refusedKeyOfModel(models, "gpt-x")).toBeNull();
});

it("is any for a model that is not listed, if no provider accepts its key", () => {
  expect(refusedKeyOfModel(models, "claude-y")).toBeNull();
  const none: ServerFacts["models"] = { ...models, items: [], state: "key_refused" };
  expect(refusedKeyOfModel(none, "")).toEqual({ name: "anthropic", where: "ANTHROPIC_API_KEY" });
});
