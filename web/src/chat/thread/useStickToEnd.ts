/** Keeps a list scrolled to its end until the user scrolls away. */

import { type RefObject, useCallback, useEffect, useRef, useState } from "react";

/** Distance from the end, in pixels, that counts as being there. */
export const NEAR_END_PX = 60;
/** How long after a touch or wheel event a scroll counts as the user's. */
const TOUCH_SCROLL_MS = 1000;

export interface StickToEnd {
  atEnd: boolean;
  /** Scroll to the end and stay there. */
  stick: () => void;
  /** Stop sticking: another item is to be shown. */
  release: () => void;
}

/** Whether to stay at the end after a scroll. Scrolls caused by height changes do not count. */
export function sticksAfterScroll(stuck: boolean, distance: number, sinceTouch: number): boolean {
  if (distance <= NEAR_END_PX) return true;
  return stuck && sinceTouch > TOUCH_SCROLL_MS;
}

export function useStickToEnd(
  frame: RefObject<HTMLElement | null>,
  inner: RefObject<HTMLElement | null>,
  toEnd: () => void,
): StickToEnd {
  const [atEnd, setAtEnd] = useState(true);
  const stuck = useRef(true);
  const go = useRef(toEnd);
  go.current = toEnd;

  useEffect(() => {
    const element = frame.current;
    if (!element || !inner.current) return;
    let touchedAt = Number.NEGATIVE_INFINITY;
    const touched = () => {
      touchedAt = performance.now();
    };
    const dragged = (event: PointerEvent) => event.buttons > 0 && touched();
    const scrolled = () => {
      const distance = element.scrollHeight - element.scrollTop - element.clientHeight;
      stuck.current = sticksAfterScroll(stuck.current, distance, performance.now() - touchedAt);
      setAtEnd(stuck.current);
    };
    const resized = () => {
      if (stuck.current) go.current();
    };
    const watcher = new ResizeObserver(resized);
    watcher.observe(element);
    watcher.observe(inner.current);
    element.addEventListener("scroll", scrolled, { passive: true });
    for (const name of ["wheel", "touchmove", "keydown", "pointerdown"])
      element.addEventListener(name, touched, { passive: true });
    element.addEventListener("pointermove", dragged, { passive: true });
    return () => {
      watcher.disconnect();
      element.removeEventListener("scroll", scrolled);
      for (const name of ["wheel", "touchmove", "keydown", "pointerdown"]) element.removeEventListener(name, touched);
      element.removeEventListener("pointermove", dragged);
    };
  }, [frame, inner]);

  const stick = useCallback(() => {
    stuck.current = true;
    setAtEnd(true);
    go.current();
  }, []);
  const release = useCallback(() => {
    stuck.current = false;
    setAtEnd(false);
  }, []);
  return { atEnd, stick, release };
}
