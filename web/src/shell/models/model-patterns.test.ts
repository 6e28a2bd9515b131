import { describe, expect, it } from "vitest";
import { matchesPattern } from "./model-patterns";

describe("a typed model name", () => {
  it("matches a pattern by prefix and suffix", () => {
    expect(matchesPattern("gpt-5", ["claude-*", "gpt-*"])).toBe(true);
    expect(matchesPattern("my-model-x", ["my-*-x"])).toBe(true);
    expect(matchesPattern("my-x", ["my-*-x"])).toBe(false);
    expect(matchesPattern("o3", ["gpt-*"])).toBe(false);
    expect(matchesPattern("anything", ["*"])).toBe(true);
  });

  it("is never a pattern itself, empty or two words", () => {
    for (const name of ["gpt-*", "", "gpt 5"]) expect(matchesPattern(name, ["gpt-*", "*"])).toBe(false);
  });
});
