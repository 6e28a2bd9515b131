/** Pressing Esc twice stops the agent. */

import { useEffect, useState } from "react";

const DOUBLE_PRESS_MS = 1200;

/** Whether Esc was just pressed once. `stop` is null while nothing can be stopped. */
export function useDoubleEscape(stop: (() => void) | null): boolean {
  const [armed, setArmed] = useState(false);
  useEffect(() => {
    if (!stop) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const pressed = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.repeat || event.isComposing || event.defaultPrevented) return;
      // Terminals, desktops and open dialogs handle Esc themselves.
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
      }, DOUBLE_PRESS_MS);
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
