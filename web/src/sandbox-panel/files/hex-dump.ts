/** Distinguishes text from binary content, and formats bytes. */

/** Decoded UTF-8 text, or null if invalid. A character cut at the end is allowed. */
export function decodeText(bytes: Uint8Array, whole: boolean): string | null {
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: !whole });
  } catch {
    return null;
  }
}

/** Hex dump lines of sixteen bytes: offset, bytes and characters. */
export function hexLines(bytes: Uint8Array, most = 256): string[] {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length && lines.length < most; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0"));
    const left = hex.slice(0, 8).join(" ").padEnd(23);
    const right = hex.slice(8).join(" ").padEnd(23);
    const seen = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${left}  ${right}  ${seen}`);
  }
  return lines;
}
