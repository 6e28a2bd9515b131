import { expect, it } from "vitest";
import { PROVIDER_SAMPLES, providerCommand } from "./provider-samples";

it("a provider is connected by its key alone, except for one at an own address", () => {
  const commands = Object.fromEntries(PROVIDER_SAMPLES.map((sample) => [sample.id, providerCommand(sample)]));
  expect(commands.anthropic).toBe("ANTHROPIC_API_KEY=… paddock serve");
  expect(Object.keys(commands).filter((id) => commands[id] === null)).toEqual(["local"]);
});
