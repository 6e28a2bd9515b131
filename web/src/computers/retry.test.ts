import { describe, expect, it } from "vitest";
import { ending, pauseAfter } from "./retry";

describe("pauseAfter", () => {
  it("doubles up to fifteen seconds", () => {
    expect([1, 2, 3, 4, 5, 6, 20].map((failures) => pauseAfter(failures, 0.5))).toEqual([
      500, 1000, 2000, 4000, 8000, 15_000, 15_000,
    ]);
  });

  it("spreads by a quarter either way", () => {
    expect(pauseAfter(2, 0)).toBe(750);
    expect(pauseAfter(2, 1)).toBe(1250);
  });
});

describe("ending", () => {
  it("does as the server's close codes ask", () => {
    expect([1000, 1001, 1006, 1012, 1002, 1008].map(ending)).toEqual([
      "over",
      "again",
      "again",
      "again",
      "mend",
      "mend",
    ]);
  });
});
