import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { findLastEventNumber } from "./last-event-number";

/** A stream without its first events, which were deleted. */
function stream(first: number, last: number) {
  let requests = 0;
  const readNext = async (after: number) => {
    requests += 1;
    return after < last ? Math.max(first, after + 1) : null;
  };
  return { readNext, requests: () => requests };
}

describe("the end of an event stream", () => {
  it("is the start of a short one, after one request", async () => {
    const { readNext, requests } = stream(1, 40);
    expect(await findLastEventNumber(readNext)).toBe(0);
    expect(requests()).toBe(1);
  });

  it("is found with few requests, at most 1,000 events too early", async () => {
    await fc.assert(
      fc.asyncProperty(fc.nat(5_000_000), fc.nat(5_000_000), async (one, other) => {
        const last = Math.max(one, other);
        const { readNext, requests } = stream(Math.min(one, other), last);
        const found = await findLastEventNumber(readNext);
        expect(found).toBeLessThanOrEqual(last);
        expect(last - found).toBeLessThanOrEqual(1_000);
        expect(requests()).toBeLessThan(30);
      }),
    );
  });
});
