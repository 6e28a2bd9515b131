/** Sandbox and view in the panel: from the URL, the user's choice, or the agent's activity. */

import { type FocusEvent, useCallback, useEffect, useRef, useState } from "react";
import type { View } from "@/sandbox-panel/SandboxPanel";
import type { SandboxView, SessionView } from "@/session/types";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { decidePanelFollow, isTextInput, type PanelChoice } from "./panel-follow";

/** How long after the last key press a person counts as typing. */
const TYPING_MS = 3000;
/** How long after a click or key press a focus change counts as the user's. */
const FOCUS_AFTER_CLICK_MS = 1500;

export interface PanelViewState {
  sandboxes: SandboxView[];
  chosen: PanelChoice | null;
  /** Agent activity elsewhere while the user is busy. */
  unseenActivity: PanelChoice | null;
  shown: boolean;
  /** With a path, the files view opens that file. */
  choose: (sandbox: string, view: View, path?: string) => void;
  toggle: () => void;
  /** The user did something in the panel. */
  markUsed: () => void;
  /** The panel received the focus; it is returned unless the user moved it there. */
  returnFocus: (event: FocusEvent<HTMLElement>) => void;
}

export function usePanelView(view: SessionView): PanelViewState {
  const [search, setSearch] = useSearchParams();
  const [unseenActivity, setUnseenActivity] = useState<PanelChoice | null>(null);
  const [shown, setShown] = useState(true);
  const handledNumber = useRef(0);
  const usedAt = useRef(0);
  const lastTypedAt = useRef(Number.NEGATIVE_INFINITY);
  const lastTabAt = useRef(Number.NEGATIVE_INFINITY);
  const sandboxes = view.sandboxOrder.flatMap((id) => {
    const sandbox = view.sandboxes[id];
    return sandbox && sandbox.state !== "released" ? [sandbox] : [];
  });
  const urlChoice = { sandbox: search.get("box") ?? "", view: (search.get("view") ?? "desktop") as View };
  const hasUrlChoice = sandboxes.some((sandbox) => sandbox.id === urlChoice.sandbox);
  const chosen = hasUrlChoice ? urlChoice : defaultChoice(sandboxes);
  const latest = useRef({ chosen, hasUrlChoice, shown });
  latest.current = { chosen, hasUrlChoice, shown };

  const set = useCallback(
    ({ sandbox, view: panelView }: PanelChoice, path?: string) => {
      setSearch(
        (before) => {
          before.set("box", sandbox);
          before.set("view", panelView);
          if (path !== undefined) before.set("path", path);
          return before;
        },
        { replace: true },
      );
      setUnseenActivity(null);
    },
    [setSearch],
  );

  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === "Tab") lastTabAt.current = performance.now();
      if (!isTextInput(event.target instanceof Element ? event.target : null)) return;
      // A sent message no longer counts as typing.
      lastTypedAt.current = event.key === "Enter" && !event.shiftKey ? Number.NEGATIVE_INFINITY : performance.now();
    };
    window.addEventListener("keydown", onKeyDown, true);
    return () => window.removeEventListener("keydown", onKeyDown, true);
  }, []);

  const { attention } = view;
  const alive = attention !== null && sandboxes.some((sandbox) => sandbox.id === attention.sandbox);
  useEffect(() => {
    if (!attention || !alive) return;
    const { chosen: current, hasUrlChoice: isExplicit, shown: open } = latest.current;
    const now = performance.now();
    const typing = now - lastTypedAt.current < TYPING_MS;
    const action = decidePanelFollow({
      attention,
      handledNumber: handledNumber.current,
      chosen: open ? current : null,
      usedAt: usedAt.current,
      typing,
      now,
    });
    // A view in the URL is explicit: earlier agent activity does not change it.
    const isFirst = handledNumber.current === 0 && isExplicit;
    handledNumber.current = attention.number;
    if (action.type === "none" || isFirst) return;
    if (action.type === "show" && open) set(action.chosen);
    else setUnseenActivity(action.chosen);
  }, [attention, alive, set]);

  const choose = useCallback(
    (sandbox: string, panelView: View, path?: string) => {
      usedAt.current = performance.now();
      setShown(true);
      set({ sandbox, view: panelView }, path);
    },
    [set],
  );
  const markUsed = useCallback(() => {
    usedAt.current = performance.now();
  }, []);
  const returnFocus = useCallback((event: FocusEvent<HTMLElement>) => {
    const previousFocus = event.relatedTarget;
    if (previousFocus && event.currentTarget.contains(previousFocus)) return;
    const last = Math.max(usedAt.current, lastTabAt.current);
    if (last > 0 && performance.now() - last < FOCUS_AFTER_CLICK_MS) return;
    if (previousFocus instanceof HTMLElement) previousFocus.focus({ preventScroll: true });
    else event.target.blur();
  }, []);
  const toggle = () => setShown(!shown);
  return { sandboxes, chosen, unseenActivity, shown, choose, toggle, markUsed, returnFocus };
}

function defaultChoice(sandboxes: readonly SandboxView[]): PanelChoice | null {
  const sandbox = sandboxes.at(-1);
  if (!sandbox) return null;
  return { sandbox: sandbox.id, view: sandbox.desktop === "started" ? "desktop" : "terminal" };
}
