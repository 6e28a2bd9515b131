import { describe, expect, it } from "vitest";
import { NEAR, staysAfter } from "./sticking";

describe("the live end", () => {
  it("is kept when heights change, and left when a person scrolls away", () => {
    expect(staysAfter(true, NEAR * 10, Number.POSITIVE_INFINITY)).toBe(true);
    expect(staysAfter(true, NEAR * 10, 50)).toBe(false);
  });

  it("is not gone to by itself, but found again by scrolling there", () => {
    expect(staysAfter(false, NEAR * 10, Number.POSITIVE_INFINITY)).toBe(false);
    expect(staysAfter(false, NEAR, 50)).toBe(true);
  });
});
