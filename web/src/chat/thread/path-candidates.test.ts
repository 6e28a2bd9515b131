import { describe, expect, it } from "vitest";
import { candidateFilePath } from "./path-candidates";

describe("paths in a text", () => {
  it.each([
    ["/workspace/report.md", "/workspace/report.md"],
    ["report.md", "/workspace/report.md"],
    ["./out/chart.svg", "/workspace/out/chart.svg"],
    ["/workspace/图表.svg", "/workspace/图表.svg"],
    ["../secret.txt", null],
    ["npm install", null],
    ["DEBUG", null],
    ["https://example.org/a.png", null],
    ["//example.org/a.png", null],
    ["a".repeat(400), null],
  ])("%s", (text, path) => {
    expect(candidateFilePath(text)).toBe(path);
  });
});
