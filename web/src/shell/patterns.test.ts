import { describe, expect, it } from "vitest";
import { fitsPattern } from "./patterns";

describe("a typed model name", () => {
  it("fits a pattern by its beginning and its end", () => {
    expect(fitsPattern("gpt-5", ["claude-*", "gpt-*"])).toBe(true);
    expect(fitsPattern("my-model-x", ["my-*-x"])).toBe(true);
    expect(fitsPattern("my-x", ["my-*-x"])).toBe(false);
    expect(fitsPattern("o3", ["gpt-*"])).toBe(false);
    expect(fitsPattern("anything", ["*"])).toBe(true);
  });

  it("is never a pattern itself, empty or two words", () => {
    for (const name of ["gpt-*", "", "gpt 5"]) expect(fitsPattern(name, ["gpt-*", "*"])).toBe(false);
  });
});
