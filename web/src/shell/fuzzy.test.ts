import { describe, expect, it } from "vitest";
import { best, fits } from "./fuzzy";

describe("the palette's search", () => {
  it("wants all letters in their order", () => {
    expect(fits("sbx", "Sandboxes")).toBeGreaterThanOrEqual(0);
    expect(fits("xbs", "Sandboxes")).toBeLessThan(0);
    expect(fits("chatz", "Chats")).toBeLessThan(0);
  });
  it("puts beginnings before middles, and middles before letters that are spread", () => {
    const found = best("run", ["Grand union", "Dry run", "Runs"], (text) => text);
    expect(found).toEqual(["Runs", "Dry run", "Grand union"]);
  });
  it("prefers the beginnings of words", () => {
    expect(fits("nc", "New chat")).toBeGreaterThan(fits("nc", "In a scheme"));
  });
  it("finds Chinese, and leaves everything as it is when nothing is typed", () => {
    expect(best("沙箱", ["对话", "新建沙箱", "沙箱"], (text) => text)).toEqual(["沙箱", "新建沙箱"]);
    expect(best("  ", ["b", "a"], (text) => text)).toEqual(["b", "a"]);
  });
});
