/** Detects control that was lost without being handed back. */

import { useEffect, useRef, useState } from "react";
import type { InputOwner } from "../input-control";

export type ControlLoss = { why: "taken"; by: string } | { why: "away" } | null;

/** How long the notice is shown. */
const NOTICE_MS = 30_000;

export function useControlLoss(hand: InputOwner, live: boolean) {
  const [reason, setReason] = useState<ControlLoss>(null);
  const had = useRef(false);
  const expected = useRef(false);
  const { who } = hand;
  const by = hand.who === "other" ? hand.name : "";
  const mine = hand.who === "other" && hand.mine;
  useEffect(() => {
    if (who === "me") had.current = true;
    // Notices about an earlier holder are outdated.
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
    const timer = setTimeout(() => setReason(null), NOTICE_MS);
    return () => clearTimeout(timer);
  }, [reason]);
  return {
    reason,
    clear: () => setReason(null),
    /** Marks that control is about to be handed back. */
    expect: () => {
      expected.current = true;
    },
  };
}
