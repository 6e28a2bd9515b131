/** Sandbox and view in the panel: from the URL, the user's choice, or the agent's activity. */

import { type FocusEvent, useCallback, useEffect, useRef, useState } from "react";
import type { View } from "@/sandbox-panel/SandboxPanel";
import type { SandboxView, SessionView } from "@/session/types";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { decideFollow, isTextInput, type PanelChoice } from "./panel-follow";

/** How long after the last key press a person counts as typing. */
const TYPING_MS = 3000;
/** How long after a click or key press a focus change counts as the user's. */
const FOCUS_AFTER_CLICK_MS = 1500;

export interface PanelViewState {
  sandboxes: SandboxView[];
  chosen: PanelChoice | null;
  /** Agent activity elsewhere while the user is busy. */
  news: PanelChoice | null;
  shown: boolean;
  /** With a path, the files view opens that file. */
  choose: (sandbox: string, view: View, path?: string) => void;
  toggle: () => void;
  /** The user did something in the panel. */
  used: () => void;
  /** The panel received the focus; it is returned unless the user moved it there. */
  focused: (event: FocusEvent<HTMLElement>) => void;
}

export function usePanelView(view: SessionView): PanelViewState {
  const [search, setSearch] = useSearchParams();
  const [news, setNews] = useState<PanelChoice | null>(null);
  const [shown, setShown] = useState(true);
  const handled = useRef(0);
  const usedAt = useRef(0);
  const letterAt = useRef(Number.NEGATIVE_INFINITY);
  const tabAt = useRef(Number.NEGATIVE_INFINITY);
  const sandboxes = view.sandboxOrder.flatMap((id) => {
    const sandbox = view.sandboxes[id];
    return sandbox && sandbox.state !== "released" ? [sandbox] : [];
  });
  const named = { sandbox: search.get("box") ?? "", view: (search.get("view") ?? "desktop") as View };
  const isNamed = sandboxes.some((sandbox) => sandbox.id === named.sandbox);
  const chosen = isNamed ? named : defaultChoice(sandboxes);
  const latest = useRef({ chosen, isNamed, shown });
  latest.current = { chosen, isNamed, shown };

  const set = useCallback(
    ({ sandbox, view: wanted }: PanelChoice, path?: string) => {
      setSearch(
        (before) => {
          before.set("box", sandbox);
          before.set("view", wanted);
          if (path !== undefined) before.set("path", path);
          return before;
        },
        { replace: true },
      );
      setNews(null);
    },
    [setSearch],
  );

  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.key === "Tab") tabAt.current = performance.now();
      if (!isTextInput(event.target instanceof Element ? event.target : null)) return;
      // A sent message no longer counts as typing.
      letterAt.current = event.key === "Enter" && !event.shiftKey ? Number.NEGATIVE_INFINITY : performance.now();
    };
    window.addEventListener("keydown", pressed, true);
    return () => window.removeEventListener("keydown", pressed, true);
  }, []);

  const { attention } = view;
  const alive = attention !== null && sandboxes.some((sandbox) => sandbox.id === attention.sandbox);
  useEffect(() => {
    if (!attention || !alive) return;
    const { chosen: current, isNamed: meant, shown: open } = latest.current;
    const now = performance.now();
    const typing = now - letterAt.current < TYPING_MS;
    const move = decideFollow({
      attention,
      handled: handled.current,
      chosen: open ? current : null,
      usedAt: usedAt.current,
      typing,
      now,
    });
    // A view in the URL is explicit: earlier agent activity does not change it.
    const first = handled.current === 0 && meant;
    handled.current = attention.number;
    if (move.type === "none" || first) return;
    if (move.type === "show" && open) set(move.chosen);
    else setNews(move.chosen);
  }, [attention, alive, set]);

  const choose = useCallback(
    (sandbox: string, wanted: View, path?: string) => {
      usedAt.current = performance.now();
      setShown(true);
      set({ sandbox, view: wanted }, path);
    },
    [set],
  );
  const used = useCallback(() => {
    usedAt.current = performance.now();
  }, []);
  const focused = useCallback((event: FocusEvent<HTMLElement>) => {
    const from = event.relatedTarget;
    if (from && event.currentTarget.contains(from)) return;
    const last = Math.max(usedAt.current, tabAt.current);
    if (last > 0 && performance.now() - last < FOCUS_AFTER_CLICK_MS) return;
    if (from instanceof HTMLElement) from.focus({ preventScroll: true });
    else event.target.blur();
  }, []);
  const toggle = () => setShown(!shown);
  return { sandboxes, chosen, news, shown, choose, toggle, used, focused };
}

function defaultChoice(sandboxes: readonly SandboxView[]): PanelChoice | null {
  const sandbox = sandboxes.at(-1);
  if (!sandbox) return null;
  return { sandbox: sandbox.id, view: sandbox.desktop === "started" ? "desktop" : "terminal" };
}
