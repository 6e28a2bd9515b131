import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Hand } from "../input";
import { useLost } from "./useLost";

const AGENT: Hand = { who: "agent" };
const ME: Hand = { who: "me" };
const BOB: Hand = { who: "other", name: "Bob", mine: false };

function follow(...first: [Hand, boolean]) {
  const hook = renderHook(({ hand, live }: { hand: Hand; live: boolean }) => useLost(hand, live), {
    initialProps: { hand: first[0], live: first[1] },
  });
  return {
    now: (hand: Hand, live = true) => {
      hook.rerender({ hand, live });
      return hook.result.current.reason;
    },
    last: hook.result,
  };
}

describe("useLost", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("tells who took control", () => {
    const { now } = follow(AGENT, true);
    expect(now(BOB)).toBeNull();
    expect(now(ME)).toBeNull();
    expect(now(BOB)).toEqual({ why: "taken", by: "Bob" });
    expect(now(AGENT)).toBeNull();
  });

  it("tells that it was away too long once the screen is back", () => {
    const { now } = follow(ME, true);
    expect(now(ME, false)).toBeNull();
    expect(now(AGENT, false)).toBeNull();
    expect(now(AGENT)).toEqual({ why: "away" });
  });

  it("says nothing of what was handed back, or taken by another window of one's own", () => {
    const { now, last } = follow(ME, true);
    last.current.expect();
    expect(now(AGENT)).toBeNull();
    now(ME);
    expect(now({ who: "other", name: "Ada", mine: true })).toBeNull();
  });

  it("is no news for ever", () => {
    const { now, last } = follow(ME, true);
    expect(now(AGENT)).not.toBeNull();
    act(() => void vi.advanceTimersByTime(31_000));
    expect(last.current.reason).toBeNull();
  });
});
