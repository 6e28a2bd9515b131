/** When and whether to reconnect. */

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;

/** Pause in milliseconds after `failures` in a row, with jitter so that pages do not reconnect at once. */
export function reconnectPause(failures: number, random = Math.random()): number {
  return Math.round(Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** Math.max(0, failures - 1)) * (0.75 + random / 2));
}

export type CloseAction = "over" | "again" | "mend";

/** What to do after a WebSocket close code of the server. */
export function closeAction(code: number): CloseAction {
  if (code === 1000) return "over";
  // The message was invalid or not allowed; reconnecting would not help.
  if (code === 1002 || code === 1003 || code === 1008 || code === 1009) return "mend";
  return "again";
}
