/** Finds the text keys that source code uses. Used by tests only. */

/** All texts of a tree, by full key. */
export function flattenTexts(texts: object, prefix = ""): Map<string, string> {
  const found = new Map<string, string>();
  for (const [name, value] of Object.entries(texts)) {
    const key = prefix ? `${prefix}.${name}` : name;
    if (value !== null && typeof value === "object")
      for (const [inner, text] of flattenTexts(value, key)) found.set(inner, text);
    else found.set(key, String(value));
  }
  return found;
}

/** Placeholders and tags of a text: `{{count}}`, `<c>`. */
export function textPlaceholders(text: string): string[] {
  return [...new Set(text.match(/\{\{\s*[\w.]+\s*\}\}|<\/?\w+\/?>/g) ?? [])].sort();
}

/** Key without its plural suffix. */
export function pluralBaseKey(key: string): string {
  return key.replace(/_(zero|one|two|few|many|other)$/, "");
}

export interface UsedKeys {
  /** Keys in calls of `t` or in `i18nKey`. */
  literal: Set<string>;
  /** Quoted strings that may be keys. */
  quoted: Set<string>;
  /** Key templates in calls of `t`: `errors.${step}`. */
  gaps: RegExp[];
  /** Key templates anywhere; some may be other identifiers. */
  patterns: RegExp[];
}

const PLACEHOLDER = "\0";
const QUOTED = /"((?:[^"\\\n]|\\.)*)"/g;

export function findUsedKeys(source: string, namespaces: string[]): UsedKeys {
  const namespacePattern = new RegExp(`^(${namespaces.join("|")})\\.`);
  const literal = new Set<string>();
  const quoted = new Set<string>();
  for (const [, text = ""] of source.matchAll(QUOTED)) if (namespacePattern.test(text)) quoted.add(text);
  for (const [, inner = ""] of source.matchAll(/\bt\(((?:[^()`]|\([^()]*\))*?)[,)]/g))
    for (const [, text = ""] of inner.matchAll(QUOTED)) if (namespacePattern.test(text)) literal.add(text);
  for (const [, text = ""] of source.matchAll(/i18nKey="([^"]+)"/g)) literal.add(text);
  return {
    literal,
    quoted,
    gaps: findTemplateKeys(source, namespaces, "\\bt\\(\\s*").map(templatePattern),
    patterns: findTemplateKeys(source, namespaces).map(templatePattern),
  };
}

/** Template literals that start with a namespace; placeholders become NUL characters. */
function findTemplateKeys(source: string, namespaces: string[], before = ""): string[] {
  const found: string[] = [];
  for (const match of source.matchAll(new RegExp(`${before}\`(?=(${namespaces.join("|")})\\.)`, "g"))) {
    let text = "";
    let depth = 0;
    for (let at = match.index + match[0].length; at < source.length && (depth > 0 || source[at] !== "`"); at += 1) {
      const character = source[at];
      if (depth > 0) depth += character === "{" ? 1 : character === "}" ? -1 : 0;
      else if (character === "$" && source[at + 1] === "{") {
        text += PLACEHOLDER;
        depth = 1;
        at += 1;
      } else text += character;
    }
    if (text.includes(PLACEHOLDER)) found.push(text);
  }
  return found;
}

function templatePattern(template: string): RegExp {
  const escaped = template.split(PLACEHOLDER).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${escaped.join(".+")}$`);
}
