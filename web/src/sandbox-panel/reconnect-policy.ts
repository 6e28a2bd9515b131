/** When and whether to reconnect. */

const MIN_RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 15_000;

/** Delay in milliseconds after `failures` in a row, with jitter so that pages do not reconnect at once. */
export function reconnectDelayMs(failures: number, random = Math.random()): number {
  return Math.round(
    Math.min(MAX_RETRY_DELAY_MS, MIN_RETRY_DELAY_MS * 2 ** Math.max(0, failures - 1)) * (0.75 + random / 2),
  );
}

export type SocketCloseAction = "stop" | "reconnect" | "fail";

/** Action after a WebSocket close code of the server. */
export function socketCloseAction(code: number): SocketCloseAction {
  if (code === 1000) return "stop";
  // The message was invalid or not allowed; reconnecting would not help.
  if (code === 1002 || code === 1003 || code === 1008 || code === 1009) return "fail";
  return "reconnect";
}
