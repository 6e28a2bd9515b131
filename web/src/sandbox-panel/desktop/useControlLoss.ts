/** Detects control that was lost without being handed back. */

import { useEffect, useRef, useState } from "react";
import type { InputOwner } from "../input-control";

export type ControlLoss = { reason: "taken"; by: string } | { reason: "disconnected" } | null;

/** How long the notice is shown. */
const NOTICE_MS = 30_000;

export function useControlLoss(owner: InputOwner, live: boolean) {
  const [reason, setReason] = useState<ControlLoss>(null);
  const hadControl = useRef(false);
  const expected = useRef(false);
  const { type: ownerType } = owner;
  const by = owner.type === "other" ? owner.name : "";
  const isSameUser = owner.type === "other" && owner.sameUser;
  useEffect(() => {
    if (ownerType === "me") hadControl.current = true;
    // Notices about an earlier holder are outdated.
    setReason(null);
    if (ownerType === "me" || !hadControl.current || !live) return;
    hadControl.current = false;
    const wasExpected = expected.current;
    expected.current = false;
    if (wasExpected || isSameUser) return;
    setReason(ownerType === "other" ? { reason: "taken", by } : { reason: "disconnected" });
  }, [ownerType, by, isSameUser, live]);
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
