/** Invisible and direction-changing characters, which can disguise a command. */

// Written as code points, so that they are visible here, too.
const INVISIBLE = new RegExp(
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

/** The text with such characters replaced by their code points; null if it has none. */
export function revealInvisibleCharacters(text: string): string | null {
  const revealed = text.replace(INVISIBLE, (character) => `⟨U+${codePointLabel(character)}⟩`);
  return revealed === text ? null : revealed;
}

function codePointLabel(character: string): string {
  return (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
}

/** All texts in the arguments that contain such characters, made visible. */
export function revealInvisibleInArguments(value: unknown): string[] {
  if (typeof value === "string") {
    const revealed = revealInvisibleCharacters(value);
    return revealed === null ? [] : [revealed];
  }
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, each]) => [
    ...revealInvisibleInArguments(name),
    ...revealInvisibleInArguments(each),
  ]);
}
