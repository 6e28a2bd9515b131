/** Text as keys of the X Window System, for where nobody has a keyboard. */

const NAMED: Record<string, number> = { "\n": 0xff0d, "\t": 0xff09, "\b": 0xff08 };
/** Typing a novel by keys helps nobody; there is a clipboard. */
const MOST = 5_000;

export function keysymsOf(text: string): number[] {
  const keys: number[] = [];
  for (const char of text.replaceAll("\r\n", "\n")) {
    const code = char.codePointAt(0) ?? 0;
    const named = NAMED[char];
    if (named !== undefined) keys.push(named);
    else if ((code >= 0x20 && code <= 0x7e) || (code >= 0xa0 && code <= 0xff)) keys.push(code);
    else if (code > 0xff) keys.push(0x01000000 | code);
    if (keys.length >= MOST) break;
  }
  return keys;
}
