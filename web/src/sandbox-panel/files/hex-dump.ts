/** Distinguishes text from binary content, and formats bytes. */

/** Decoded UTF-8 text, or null if invalid. A character cut at the end is allowed. */
export function decodeUtf8Text(bytes: Uint8Array, isComplete: boolean): string | null {
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: !isComplete });
  } catch {
    return null;
  }
}

/** Hex dump lines of sixteen bytes: offset, bytes and characters. */
export function formatHexLines(bytes: Uint8Array, maxLines = 256): string[] {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length && lines.length < maxLines; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0"));
    const leftHex = hex.slice(0, 8).join(" ").padEnd(23);
    const rightHex = hex.slice(8).join(" ").padEnd(23);
    const printable = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${leftHex}  ${rightHex}  ${printable}`);
  }
  return lines;
}
