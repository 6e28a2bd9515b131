/** Text as X11 keysyms, for devices without a keyboard. */

const CONTROL_KEYSYMS: Record<string, number> = { "\n": 0xff0d, "\t": 0xff09, "\b": 0xff08 };
/** Limit of typed text; longer text belongs on the clipboard. */
const MAX_KEYS = 5_000;

export function textToKeysyms(text: string): number[] {
  const keys: number[] = [];
  for (const char of text.replaceAll("\r\n", "\n")) {
    const code = char.codePointAt(0) ?? 0;
    const controlKeysym = CONTROL_KEYSYMS[char];
    if (controlKeysym !== undefined) keys.push(controlKeysym);
    else if ((code >= 0x20 && code <= 0x7e) || (code >= 0xa0 && code <= 0xff)) keys.push(code);
    else if (code > 0xff) keys.push(0x01000000 | code);
    if (keys.length >= MAX_KEYS) break;
  }
  return keys;
}
