import { describe, expect, it } from "vitest";
import { bestFuzzyMatches, fuzzyScore } from "./fuzzy-search";

describe("the palette's search", () => {
  it("requires all characters in order", () => {
    expect(fuzzyScore("sbx", "Sandboxes")).toBeGreaterThanOrEqual(0);
    expect(fuzzyScore("xbs", "Sandboxes")).toBeLessThan(0);
    expect(fuzzyScore("chatz", "Chats")).toBeLessThan(0);
  });
  it("ranks prefixes before substrings, and substrings before scattered characters", () => {
    const found = bestFuzzyMatches("run", ["Grand union", "Dry run", "Runs"], (text) => text);
    expect(found).toEqual(["Runs", "Dry run", "Grand union"]);
  });
  it("prefers the beginnings of words", () => {
    expect(fuzzyScore("nc", "New chat")).toBeGreaterThan(fuzzyScore("nc", "In a scheme"));
  });
  it("finds Chinese, and keeps the order without a query", () => {
    expect(bestFuzzyMatches("沙箱", ["对话", "新建沙箱", "沙箱"], (text) => text)).toEqual(["沙箱", "新建沙箱"]);
    expect(bestFuzzyMatches("  ", ["b", "a"], (text) => text)).toEqual(["b", "a"]);
  });
});
