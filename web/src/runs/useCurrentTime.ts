import { useEffect, useState } from "react";

/** The current time, updated while needed. */
export function useCurrentTime(running = true): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => document.visibilityState === "visible" && setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [running]);
  return now;
}
