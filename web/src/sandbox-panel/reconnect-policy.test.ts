import { describe, expect, it } from "vitest";
import { reconnectDelayMs, socketCloseAction } from "./reconnect-policy";

describe("reconnectDelayMs", () => {
  it("doubles up to fifteen seconds", () => {
    expect([1, 2, 3, 4, 5, 6, 20].map((failures) => reconnectDelayMs(failures, 0.5))).toEqual([
      500, 1000, 2000, 4000, 8000, 15_000, 15_000,
    ]);
  });

  it("has a jitter of 25 %", () => {
    expect(reconnectDelayMs(2, 0)).toBe(750);
    expect(reconnectDelayMs(2, 1)).toBe(1250);
  });
});

describe("socketCloseAction", () => {
  it("follows the server's close codes", () => {
    expect([1000, 1001, 1006, 1012, 1002, 1008].map(socketCloseAction)).toEqual([
      "stop",
      "reconnect",
      "reconnect",
      "reconnect",
      "fail",
      "fail",
    ]);
  });
});
