import { describe, expect, it } from "vitest";
import { closeAction, reconnectPause } from "./reconnect-policy";

describe("reconnectPause", () => {
  it("doubles up to fifteen seconds", () => {
    expect([1, 2, 3, 4, 5, 6, 20].map((failures) => reconnectPause(failures, 0.5))).toEqual([
      500, 1000, 2000, 4000, 8000, 15_000, 15_000,
    ]);
  });

  it("has a jitter of 25 %", () => {
    expect(reconnectPause(2, 0)).toBe(750);
    expect(reconnectPause(2, 1)).toBe(1250);
  });
});

describe("closeAction", () => {
  it("follows the server's close codes", () => {
    expect([1000, 1001, 1006, 1012, 1002, 1008].map(closeAction)).toEqual([
      "over",
      "again",
      "again",
      "again",
      "mend",
      "mend",
    ]);
  });
});
