/** Approval shortcuts: `a` or Ctrl+Enter approves, `r` rejects, unless a text field has the focus. */

import { useEffect, useRef } from "react";
import type { Approval } from "@/api/types";
import type { ApprovalDecision } from "@/session/store";
import { identifyTool } from "../calls/tool-labels";
import { isTextInput } from "../panel-follow";
import { buildApprovalDecision } from "./approval-decisions";
import { revealInvisibleCharacters } from "./invisible-characters";
import { useVisibleApprovals } from "./visible-approvals";

/** Ignore keys for a moment after an approval appears: the key press may have been meant for another one. */
const SETTLE_MS = 500;
/** After `g`, letters navigate (`g a` opens the archive) and must not decide an approval. */
const AFTER_G_MS = 1500;

export function approvalToolName(approval: Approval): string {
  return identifyTool({ tool: "", name: approval.name, kind: approval.kind ?? null }).tool;
}

/** Whether one line shows the whole call, so that nothing is approved unseen. */
export function lineShowsWholeCall(line: string, approval: Approval): boolean {
  const values = Object.values(approval.arguments).filter((value) => value !== null && value !== undefined);
  return values.length === 1 && values[0] === line && revealInvisibleCharacters(line) === null;
}

export type ApprovalKeyAction = "approve" | "reject" | null;

export function approvalActionForKey(
  event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "altKey" | "repeat">,
): ApprovalKeyAction {
  if (event.repeat || event.altKey) return null;
  const command = event.ctrlKey || event.metaKey;
  if (event.key === "Enter") return command ? "approve" : null;
  if (command) return null;
  if (event.key === "a") return "approve";
  return event.key === "r" ? "reject" : null;
}

export function useApprovalShortcuts(
  waiting: readonly Approval[],
  decide: (decisions: ApprovalDecision[]) => Promise<boolean>,
  onShow: (approval: Approval) => void,
): void {
  const current = waiting[0];
  const shownSince = useRef({ id: "", at: 0 });
  const gPressedAt = useRef(Number.NEGATIVE_INFINITY);
  const latest = useRef({ current, decide, onShow });
  latest.current = { current, decide, onShow };
  const id = current?.id ?? "";
  if (shownSince.current.id !== id) shownSince.current = { id, at: performance.now() };
  useEffect(() => {
    useVisibleApprovals.setState({ current: id || null });
    if (!id) return;
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === "g") gPressedAt.current = event.timeStamp;
      if (event.timeStamp - gPressedAt.current < AFTER_G_MS) return;
      const { current: approval, decide: run, onShow: show } = latest.current;
      const press = approvalActionForKey(event);
      if (!approval || !press || event.defaultPrevented || isTextInput(document.activeElement)) return;
      if (document.querySelector('[role="dialog"], [role="menu"]')) return;
      if (performance.now() - shownSince.current.at < SETTLE_MS) return;
      event.preventDefault();
      const { inView, setOpen } = useVisibleApprovals.getState();
      // The first press scrolls the card into view; the second one decides.
      if (!inView.has(approval.id)) show(approval);
      else if (press === "reject" && approval.actions.includes("reject")) setOpen(approval.id, "reject");
      else if (press === "approve" && approval.type === "call")
        void run([buildApprovalDecision(approval, { action: "approve" })]);
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [id]);
}
