/** The messages of a terminal's WebSocket, and how far we have read. */

export type Words =
  | { type: "connected"; name: string; offset: number; cols?: number; rows?: number; held?: string | null }
  | { type: "size"; cols: number; rows: number }
  | { type: "held"; by: string; viewer: string }
  | { type: "exit"; exit_code: number | null }
  | { type: "closed"; reason: string }
  | { type: "error"; code: string; error: string }
  | { type: "pong" };

export interface Piece {
  bytes: Uint8Array;
  /** Something before it was skipped: the screen begins anew. */
  reset: boolean;
  /** The offset behind it: what to come back with. */
  offset: number;
}

const INPUT = 0;
const OUTPUT = 1;
const REPLAY = 3;

/** What a binary message brings to somebody who has read up to `offset`; null for what we do not know. */
export function piece(data: ArrayBuffer, offset: number): Piece | null {
  const bytes = new Uint8Array(data);
  if (bytes[0] === OUTPUT) {
    const output = bytes.subarray(1);
    return { bytes: output, reset: false, offset: offset + output.length };
  }
  if (bytes[0] === REPLAY && bytes.length >= 9) {
    const begins = Number(new DataView(data).getBigUint64(1));
    const output = bytes.subarray(9);
    return { bytes: output, reset: begins !== offset, offset: begins + output.length };
  }
  return null;
}

const encoder = new TextEncoder();

/** What was typed, as it is sent. */
export function typed(text: string): Uint8Array<ArrayBuffer> {
  const bytes = encoder.encode(text);
  const message = new Uint8Array(bytes.length + 1);
  message[0] = INPUT;
  message.set(bytes, 1);
  return message;
}

/** Names of terminals: what a new one is called. */
export function freshName(taken: string[]): string {
  if (!taken.includes("main")) return "main";
  for (let number = 2; ; number += 1) if (!taken.includes(`shell-${number}`)) return `shell-${number}`;
}
