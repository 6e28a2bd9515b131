/** Esc, pressed twice, stops the agent. */

import { useEffect, useState } from "react";

const TOGETHER = 1200;

/** Whether the first Esc was pressed just now. `stop` is null while there is nothing to stop. */
export function useStopKeys(stop: (() => void) | null): boolean {
  const [armed, setArmed] = useState(false);
  useEffect(() => {
    if (!stop) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const pressed = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.repeat || event.isComposing || event.defaultPrevented) return;
      // In a terminal or a desktop, and where something is open that it closes, the key is not ours.
      const target = event.target instanceof Element ? event.target : null;
      if (target?.closest(".xterm, canvas, [data-takes-keys], [data-reason]")) return;
      if (document.querySelector('[role="dialog"], [role="menu"]')) return;
      clearTimeout(timer);
      if (armedNow) {
        armedNow = false;
        setArmed(false);
        stop();
        return;
      }
      armedNow = true;
      setArmed(true);
      timer = setTimeout(() => {
        armedNow = false;
        setArmed(false);
      }, TOGETHER);
    };
    let armedNow = false;
    window.addEventListener("keydown", pressed);
    return () => {
      window.removeEventListener("keydown", pressed);
      clearTimeout(timer);
      setArmed(false);
    };
  }, [stop]);
  return armed;
}
