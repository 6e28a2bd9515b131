/** Messages of a terminal's WebSocket, with read offsets. */

export type TerminalMessage =
  | { type: "connected"; name: string; offset: number; cols?: number; rows?: number; held?: string | null }
  | { type: "size"; cols: number; rows: number }
  | { type: "held"; by: string; viewer: string }
  | { type: "exit"; exit_code: number | null }
  | { type: "closed"; reason: string }
  | { type: "error"; code: string; error: string }
  | { type: "pong" };

export interface TerminalOutputPiece {
  bytes: Uint8Array;
  /** Earlier output was skipped: clear the screen. */
  reset: boolean;
  /** Offset after the piece, used to resume. */
  offset: number;
}

const INPUT = 0;
const OUTPUT = 1;
const REPLAY = 3;

/** Parse a binary message for a reader at `offset`; null if unknown. */
export function parseTerminalOutput(data: ArrayBuffer, offset: number): TerminalOutputPiece | null {
  const bytes = new Uint8Array(data);
  if (bytes[0] === OUTPUT) {
    const output = bytes.subarray(1);
    return { bytes: output, reset: false, offset: offset + output.length };
  }
  if (bytes[0] === REPLAY && bytes.length >= 9) {
    const startOffset = Number(new DataView(data).getBigUint64(1));
    const output = bytes.subarray(9);
    return { bytes: output, reset: startOffset !== offset, offset: startOffset + output.length };
  }
  return null;
}

const encoder = new TextEncoder();

/** Encode typed text. */
export function encodeTerminalInput(text: string): Uint8Array<ArrayBuffer> {
  const bytes = encoder.encode(text);
  const message = new Uint8Array(bytes.length + 1);
  message[0] = INPUT;
  message.set(bytes, 1);
  return message;
}

/** First unused terminal name. */
export function unusedTerminalName(usedNames: string[]): string {
  if (!usedNames.includes("main")) return "main";
  for (let number = 2; ; number += 1) if (!usedNames.includes(`shell-${number}`)) return `shell-${number}`;
}
