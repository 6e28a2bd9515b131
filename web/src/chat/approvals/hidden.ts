/** Letters that cannot be seen or turn the direction of others, and so make a command look like another one. */

// Written as code points: here, too, they must be seen.
const HIDDEN = new RegExp(
  `[${[
    [0x0000, 0x0008],
    [0x000b, 0x000c],
    [0x000e, 0x001f],
    [0x007f, 0x009f],
    [0x00ad, 0x00ad],
    [0x061c, 0x061c],
    [0x200b, 0x200f],
    [0x2028, 0x202e],
    [0x2060, 0x206f],
    [0xfeff, 0xfeff],
  ]
    .map(([from, to]) => `\\u{${(from ?? 0).toString(16)}}-\\u{${(to ?? 0).toString(16)}}`)
    .join("")}\\u{e0000}-\\u{e007f}]`,
  "gu",
);

/** A text with such letters replaced by their numbers; null if it has none. */
export function revealed(text: string): string | null {
  const shown = text.replace(HIDDEN, (letter) => `⟨U+${code(letter)}⟩`);
  return shown === text ? null : shown;
}

function code(letter: string): string {
  return (letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
}

/** Of all texts in arguments, those that have such letters, as they really are. */
export function revealedIn(value: unknown): string[] {
  if (typeof value === "string") {
    const shown = revealed(value);
    return shown === null ? [] : [shown];
  }
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, each]) => [...revealedIn(name), ...revealedIn(each)]);
}
