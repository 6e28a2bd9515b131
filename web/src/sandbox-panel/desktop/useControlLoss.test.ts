import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { InputOwner } from "../input-control";
import { useControlLoss } from "./useControlLoss";

const AGENT: InputOwner = { type: "agent" };
const ME: InputOwner = { type: "me" };
const BOB: InputOwner = { type: "other", name: "Bob", sameUser: false };

function renderControlLoss(...first: [InputOwner, boolean]) {
  const hook = renderHook(({ owner, live }: { owner: InputOwner; live: boolean }) => useControlLoss(owner, live), {
    initialProps: { owner: first[0], live: first[1] },
  });
  return {
    now: (owner: InputOwner, live = true) => {
      hook.rerender({ owner, live });
      return hook.result.current.reason;
    },
    last: hook.result,
  };
}

describe("useControlLoss", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("names the person that took control", () => {
    const { now } = renderControlLoss(AGENT, true);
    expect(now(BOB)).toBeNull();
    expect(now(ME)).toBeNull();
    expect(now(BOB)).toEqual({ reason: "taken", by: "Bob" });
    expect(now(AGENT)).toBeNull();
  });

  it("reports a long disconnect once the screen is back", () => {
    const { now } = renderControlLoss(ME, true);
    expect(now(ME, false)).toBeNull();
    expect(now(AGENT, false)).toBeNull();
    expect(now(AGENT)).toEqual({ reason: "disconnected" });
  });

  it("ignores hand-back and the user's other windows", () => {
    const { now, last } = renderControlLoss(ME, true);
    last.current.expect();
    expect(now(AGENT)).toBeNull();
    now(ME);
    expect(now({ type: "other", name: "Ada", sameUser: true })).toBeNull();
  });

  it("expires", () => {
    const { now, last } = renderControlLoss(ME, true);
    expect(now(AGENT)).not.toBeNull();
    act(() => void vi.advanceTimersByTime(31_000));
    expect(last.current.reason).toBeNull();
  });
});
