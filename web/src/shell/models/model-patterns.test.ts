import { describe, expect, it } from "vitest";
import { matchesModelPattern } from "./model-patterns";

describe("a typed model name", () => {
  it("matches a pattern by prefix and suffix", () => {
    expect(matchesModelPattern("gpt-5", ["claude-*", "gpt-*"])).toBe(true);
    expect(matchesModelPattern("my-model-x", ["my-*-x"])).toBe(true);
    expect(matchesModelPattern("my-x", ["my-*-x"])).toBe(false);
    expect(matchesModelPattern("o3", ["gpt-*"])).toBe(false);
    expect(matchesModelPattern("anything", ["*"])).toBe(true);
  });

  it("is never a pattern itself, empty or two words", () => {
    for (const name of ["gpt-*", "", "gpt 5"]) expect(matchesModelPattern(name, ["gpt-*", "*"])).toBe(false);
  });
});
