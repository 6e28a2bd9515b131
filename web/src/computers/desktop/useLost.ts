/** Notices that control was lost without having been handed back. */

import { useEffect, useRef, useState } from "react";
import type { Hand } from "../input";

export type Lost = { why: "taken"; by: string } | { why: "away" } | null;

/** After this it is no news any more. */
const NEWS = 30_000;

export function useLost(hand: Hand, live: boolean) {
  const [reason, setReason] = useState<Lost>(null);
  const had = useRef(false);
  const expected = useRef(false);
  const { who } = hand;
  const by = hand.who === "other" ? hand.name : "";
  const mine = hand.who === "other" && hand.mine;
  useEffect(() => {
    if (who === "me") had.current = true;
    // Whatever was said of an earlier holder is not true of this one.
    setReason(null);
    if (who === "me" || !had.current || !live) return;
    had.current = false;
    const asked = expected.current;
    expected.current = false;
    if (asked || mine) return;
    setReason(who === "other" ? { why: "taken", by } : { why: "away" });
  }, [who, by, mine, live]);
  useEffect(() => {
    if (!reason) return;
    const timer = setTimeout(() => setReason(null), NEWS);
    return () => clearTimeout(timer);
  }, [reason]);
  return {
    reason,
    clear: () => setReason(null),
    /** It is about to be handed back on purpose. */
    expect: () => {
      expected.current = true;
    },
  };
}
