/** Finds the words that source code asks for. Only tests use it. */

/** All texts in a tree of words, by their whole key. */
export function flattened(words: object, prefix = ""): Map<string, string> {
  const found = new Map<string, string>();
  for (const [name, value] of Object.entries(words)) {
    const key = prefix ? `${prefix}.${name}` : name;
    if (value !== null && typeof value === "object")
      for (const [inner, text] of flattened(value, key)) found.set(inner, text);
    else found.set(key, String(value));
  }
  return found;
}

/** What a text leaves open, and how it is marked: `{{count}}`, `<c>`. */
export function placeholders(text: string): string[] {
  return [...new Set(text.match(/\{\{\s*[\w.]+\s*\}\}|<\/?\w+\/?>/g) ?? [])].sort();
}

/** Keys without what tells one from many. */
export function base(key: string): string {
  return key.replace(/_(zero|one|two|few|many|other)$/, "");
}

export interface Asked {
  /** Keys that stand in a call of `t`, or in `i18nKey`. */
  literal: Set<string>;
  /** Anything between quotes that may be a key. */
  quoted: Set<string>;
  /** Keys with gaps, in a call of `t`: `errors.${step}`. */
  gaps: RegExp[];
  /** The same, wherever they stand: they may also be names of other things. */
  patterns: RegExp[];
}

const GAP = "\0";
const QUOTED = /"((?:[^"\\\n]|\\.)*)"/g;

export function asked(source: string, rooms: string[]): Asked {
  const begins = new RegExp(`^(${rooms.join("|")})\\.`);
  const literal = new Set<string>();
  const quoted = new Set<string>();
  for (const [, text = ""] of source.matchAll(QUOTED)) if (begins.test(text)) quoted.add(text);
  for (const [, inner = ""] of source.matchAll(/\bt\(((?:[^()`]|\([^()]*\))*?)[,)]/g))
    for (const [, text = ""] of inner.matchAll(QUOTED)) if (begins.test(text)) literal.add(text);
  for (const [, text = ""] of source.matchAll(/i18nKey="([^"]+)"/g)) literal.add(text);
  return {
    literal,
    quoted,
    gaps: templates(source, rooms, "\\bt\\(\\s*").map(pattern),
    patterns: templates(source, rooms).map(pattern),
  };
}

/** Keys with gaps: what begins with a room after a backquote, up to the one that ends it; gaps as a null letter. */
function templates(source: string, rooms: string[], before = ""): string[] {
  const found: string[] = [];
  for (const match of source.matchAll(new RegExp(`${before}\`(?=(${rooms.join("|")})\\.)`, "g"))) {
    let text = "";
    let depth = 0;
    for (let at = match.index + match[0].length; at < source.length && (depth > 0 || source[at] !== "`"); at += 1) {
      const letter = source[at];
      if (depth > 0) depth += letter === "{" ? 1 : letter === "}" ? -1 : 0;
      else if (letter === "$" && source[at + 1] === "{") {
        text += GAP;
        depth = 1;
        at += 1;
      } else text += letter;
    }
    if (text.includes(GAP)) found.push(text);
  }
  return found;
}

function pattern(template: string): RegExp {
  const escaped = template.split(GAP).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${escaped.join(".+")}$`);
}
