/** When to try a connection again, and whether. */

const FIRST = 500;
const LONGEST = 15_000;

/** Milliseconds before the attempt that follows `failures` in a row; spread, so that many pages do not come at once. */
export function pauseAfter(failures: number, random = Math.random()): number {
  return Math.round(Math.min(LONGEST, FIRST * 2 ** Math.max(0, failures - 1)) * (0.75 + random / 2));
}

export type Ending = "over" | "again" | "mend";

/** What a close code of the server's own WebSockets asks of us. */
export function ending(code: number): Ending {
  if (code === 1000) return "over";
  // What came was not understood, or is not allowed: the same again would fare no better.
  if (code === 1002 || code === 1003 || code === 1008 || code === 1009) return "mend";
  return "again";
}
