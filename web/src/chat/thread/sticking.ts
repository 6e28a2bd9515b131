/** Staying at the live end while it moves away, until a person goes elsewhere. */

import { type RefObject, useCallback, useEffect, useRef, useState } from "react";

/** How near to the end counts as being there, in pixels. */
export const NEAR = 60;
/** How long after a person's touch a scroll is theirs. */
const THEIRS = 1000;

export interface Sticking {
  atEnd: boolean;
  /** Go to the end, and stay there. */
  stick: () => void;
  /** Something else is to be looked at. */
  release: () => void;
}

/** Whether to stay at the end after a scroll. One that nobody made, because heights have changed, changes nothing. */
export function staysAfter(stuck: boolean, distance: number, sinceTouch: number): boolean {
  if (distance <= NEAR) return true;
  return stuck && sinceTouch > THEIRS;
}

export function useSticking(
  frame: RefObject<HTMLElement | null>,
  inner: RefObject<HTMLElement | null>,
  toEnd: () => void,
): Sticking {
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
      stuck.current = staysAfter(stuck.current, distance, performance.now() - touchedAt);
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
