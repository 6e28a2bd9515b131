import { describe, expect, it } from "vitest";
import { NEAR_END_PX, sticksAfterScroll } from "./useStickToEnd";

describe("sticking to the end", () => {
  it("survives height changes, and stops when the user scrolls away", () => {
    expect(sticksAfterScroll(true, NEAR_END_PX * 10, Number.POSITIVE_INFINITY)).toBe(true);
    expect(sticksAfterScroll(true, NEAR_END_PX * 10, 50)).toBe(false);
  });

  it("resumes only after scrolling to the end", () => {
    expect(sticksAfterScroll(false, NEAR_END_PX * 10, Number.POSITIVE_INFINITY)).toBe(false);
    expect(sticksAfterScroll(false, NEAR_END_PX, 50)).toBe(true);
  });
});
