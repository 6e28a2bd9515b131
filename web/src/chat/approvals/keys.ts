/** Deciding by keys: `a` or Ctrl+Enter approves, `r` rejects, while nobody types. */

import { useEffect, useRef } from "react";
import type { Approval } from "@/api/types";
import type { Decision } from "@/session/store";
import { known } from "../calls/words";
import { isTyping } from "../panel";
import { useAsking } from "./asking";
import { decisionOf } from "./deciding";
import { revealed } from "./hidden";

/** A key that was on its way to what was asked before must not decide what is asked now. */
const SETTLING = 500;
/** After `g`, letters lead to other pages (`g a` to the archive), and must not decide anything. */
const GOING = 1500;

export function toolOfApproval(approval: Approval): string {
  return known({ tool: "", name: approval.name, kind: approval.kind ?? null }).tool;
}

/** Whether one line tells all there is to decide on, so that nothing is approved unseen. */
export function wholeIn(line: string, approval: Approval): boolean {
  const given = Object.values(approval.arguments).filter((value) => value !== null && value !== undefined);
  return given.length === 1 && given[0] === line && revealed(line) === null;
}

export type Press = "approve" | "reject" | null;

export function pressOf(event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "altKey" | "repeat">): Press {
  if (event.repeat || event.altKey) return null;
  const command = event.ctrlKey || event.metaKey;
  if (event.key === "Enter") return command ? "approve" : null;
  if (command) return null;
  if (event.key === "a") return "approve";
  return event.key === "r" ? "reject" : null;
}

export function useApprovalKeys(
  waiting: readonly Approval[],
  decide: (decisions: Decision[]) => Promise<boolean>,
  onShow: (approval: Approval) => void,
): void {
  const current = waiting[0];
  const since = useRef({ id: "", at: 0 });
  const goingAt = useRef(Number.NEGATIVE_INFINITY);
  const latest = useRef({ current, decide, onShow });
  latest.current = { current, decide, onShow };
  const id = current?.id ?? "";
  if (since.current.id !== id) since.current = { id, at: performance.now() };
  useEffect(() => {
    useAsking.setState({ current: id || null });
    if (!id) return;
    const pressed = (event: KeyboardEvent) => {
      if (event.key === "g") goingAt.current = event.timeStamp;
      if (event.timeStamp - goingAt.current < GOING) return;
      const { current: approval, decide: run, onShow: show } = latest.current;
      const press = pressOf(event);
      if (!approval || !press || event.defaultPrevented || isTyping(document.activeElement)) return;
      if (document.querySelector('[role="dialog"], [role="menu"]')) return;
      if (performance.now() - since.current.at < SETTLING) return;
      event.preventDefault();
      const { seen, setOpen } = useAsking.getState();
      // What cannot be seen is shown first: the same key, pressed again, decides.
      if (!seen.has(approval.id)) show(approval);
      else if (press === "reject" && approval.actions.includes("reject")) setOpen(approval.id, "reject");
      else if (press === "approve" && approval.type === "call") void run([decisionOf(approval, { action: "approve" })]);
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, [id]);
}
