/** Text of a tool's definition, made to be compared line by line. */

const FIRST_FIELDS = ["name", "title", "description"];

/** Fields in a fixed order: text as it is, the rest as JSON with sorted keys. */
export function heldToolText(definition: Readonly<Record<string, unknown>>): string {
  const names = Object.keys(definition).filter((name) => !FIRST_FIELDS.includes(name));
  const present = FIRST_FIELDS.filter((name) => name in definition);
  return [...present, ...names.sort()]
    .map((name) => {
      const value = definition[name];
      const text = typeof value === "string" ? visibleText(value) : JSON.stringify(sortKeys(value), null, 2);
      return text.includes("\n") ? `${name}:\n${text}` : `${name}: ${text}`;
    })
    .join("\n");
}

/** Text in which characters that cannot be seen, or that reorder text, are written as escapes. */
function visibleText(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (character) =>
    character === "\n" || character === "\t"
      ? character
      : `\\u{${(character.codePointAt(0) ?? 0).toString(16).toUpperCase()}}`,
  );
}

function sortKeys(value: unknown): unknown {
  if (typeof value === "string") return visibleText(value);
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, each]) => [visibleText(name), sortKeys(each)]),
  );
}
