/** Telling text from other bytes, and showing those. */

/** The text, or null if these are no UTF-8. A character that was cut at the end does not count against it. */
export function asText(bytes: Uint8Array, whole: boolean): string | null {
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: !whole });
  } catch {
    return null;
  }
}

/** Lines of sixteen bytes: where they are, what they are, and what they look like. */
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
