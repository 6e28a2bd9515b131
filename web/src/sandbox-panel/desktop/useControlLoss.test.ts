import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { InputOwner } from "../input-control";
import { useControlLoss } from "./useControlLoss";

const AGENT: InputOwner = { who: "agent" };
const ME: InputOwner = { who: "me" };
const BOB: InputOwner = { who: "other", name: "Bob", mine: false };

function follow(...first: [InputOwner, boolean]) {
  const hook = renderHook(({ hand, live }: { hand: InputOwner; live: boolean }) => useControlLoss(hand, live), {
    initialProps: { hand: first[0], live: first[1] },
  });
  return {
    now: (hand: InputOwner, live = true) => {
      hook.rerender({ hand, live });
      return hook.result.current.reason;
    },
    last: hook.result,
  };
}

describe("useControlLoss", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("reports who took control", () => {
    const { now } = follow(AGENT, true);
    expect(now(BOB)).toBeNull();
    expect(now(ME)).toBeNull();
    expect(now(BOB)).toEqual({ why: "taken", by: "Bob" });
    expect(now(AGENT)).toBeNull();
  });

  it("reports a long disconnect once the screen is back", () => {
    const { now } = follow(ME, true);
    expect(now(ME, false)).toBeNull();
    expect(now(AGENT, false)).toBeNull();
    expect(now(AGENT)).toEqual({ why: "away" });
  });

  it("ignores hand-back and the user's other windows", () => {
    const { now, last } = follow(ME, true);
    last.current.expect();
    expect(now(AGENT)).toBeNull();
    now(ME);
    expect(now({ who: "other", name: "Ada", mine: true })).toBeNull();
  });

  it("expires", () => {
    const { now, last } = follow(ME, true);
    expect(now(AGENT)).not.toBeNull();
    act(() => void vi.advanceTimersByTime(31_000));
    expect(last.current.reason).toBeNull();
  });
});
