/** Which box and view are shown beside the thread: what the address names, a person chooses, or the agent uses. */

import { type FocusEvent, useCallback, useEffect, useRef, useState } from "react";
import type { View } from "@/computers/Computers";
import type { BoxView, SessionView } from "@/session/types";
import { useSearchParams } from "@/ui/search";
import { type Chosen, follow, isTyping } from "./panel";

/** How long after the last letter somebody still counts as typing. */
const LETTER = 3000;
/** How long after a click or a key the focus may still follow it. */
const MEANT = 1500;

export interface Following {
  boxes: BoxView[];
  chosen: Chosen | null;
  /** What the agent does elsewhere, while the person is busy. */
  news: Chosen | null;
  shown: boolean;
  /** With a path, the files view opens that file. */
  choose: (sandbox: string, view: View, path?: string) => void;
  toggle: () => void;
  /** Something was done within the panel. */
  used: () => void;
  /** Something in the panel has got the focus: unless a person put it there, it goes back. */
  focused: (event: FocusEvent<HTMLElement>) => void;
}

export function useFollowing(view: SessionView): Following {
  const [search, setSearch] = useSearchParams();
  const [news, setNews] = useState<Chosen | null>(null);
  const [shown, setShown] = useState(true);
  const handled = useRef(0);
  const usedAt = useRef(0);
  const letterAt = useRef(Number.NEGATIVE_INFINITY);
  const tabAt = useRef(Number.NEGATIVE_INFINITY);
  const boxes = view.boxOrder.flatMap((id) => {
    const box = view.boxes[id];
    return box && box.state !== "released" ? [box] : [];
  });
  const named = { sandbox: search.get("box") ?? "", view: (search.get("view") ?? "desktop") as View };
  const isNamed = boxes.some((box) => box.id === named.sandbox);
  const chosen = isNamed ? named : usual(boxes);
  const latest = useRef({ chosen, isNamed, shown });
  latest.current = { chosen, isNamed, shown };

  const set = useCallback(
    ({ sandbox, view: wanted }: Chosen, path?: string) => {
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
      if (!isTyping(event.target instanceof Element ? event.target : null)) return;
      // What was sent is no longer being typed.
      letterAt.current = event.key === "Enter" && !event.shiftKey ? Number.NEGATIVE_INFINITY : performance.now();
    };
    window.addEventListener("keydown", pressed, true);
    return () => window.removeEventListener("keydown", pressed, true);
  }, []);

  const { attention } = view;
  const alive = attention !== null && boxes.some((box) => box.id === attention.sandbox);
  useEffect(() => {
    if (!attention || !alive) return;
    const { chosen: current, isNamed: meant, shown: open } = latest.current;
    const now = performance.now();
    const typing = now - letterAt.current < LETTER;
    const move = follow({
      attention,
      handled: handled.current,
      chosen: open ? current : null,
      usedAt: usedAt.current,
      typing,
      now,
    });
    // An address that names a view was meant: what happened before it was opened does not change it.
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
    if (last > 0 && performance.now() - last < MEANT) return;
    if (from instanceof HTMLElement) from.focus({ preventScroll: true });
    else event.target.blur();
  }, []);
  const toggle = () => setShown(!shown);
  return { boxes, chosen, news, shown, choose, toggle, used, focused };
}

function usual(boxes: readonly BoxView[]): Chosen | null {
  const box = boxes.at(-1);
  if (!box) return null;
  return { sandbox: box.id, view: box.desktop === "started" ? "desktop" : "terminal" };
}
