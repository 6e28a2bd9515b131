/**
 * Paths in a box. A name may have any byte but `/` and NUL: bytes that are no UTF-8 are held as lone surrogates, as
 * Python does, so that every path is one string.
 */

export function join(directory: string, name: string): string {
  return directory === "/" ? `/${name}` : `${directory}/${name}`;
}

export function parent(path: string): string {
  const at = path.lastIndexOf("/");
  return at <= 0 ? "/" : path.slice(0, at);
}

export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1) || "/";
}

/** The end of a name behind its last dot, in small letters. */
export function ending(path: string): string {
  const name = nameOf(path);
  const at = name.lastIndexOf(".");
  return at > 0 ? name.slice(at + 1).toLowerCase() : "";
}

/** Without `.`, `..` and doubled slashes; always absolute. */
export function normal(path: string): string {
  const parts: string[] = [];
  for (const part of path.split("/")) {
    if (part === "..") parts.pop();
    else if (part && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

/** Each directory on the way to a path, and itself. */
export function trail(path: string): string[] {
  const parts = normal(path).split("/").filter(Boolean);
  return ["/", ...parts.map((_, at) => `/${parts.slice(0, at + 1).join("/")}`)];
}

export function isBelow(path: string, directory: string): boolean {
  return directory === "/" || path === directory || path.startsWith(`${directory}/`);
}

const LONE = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g;
/** As an address of the page can carry it: without bytes that are no text. */
export function wellFormed(text: string): string {
  return text.replace(LONE, "\uFFFD");
}

/** What has no looks of its own; the joiner that emoji are made with is let be. */
const HIDDEN = /(?!\u200D)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A name as it is shown: what would break a line, be invisible or turn the direction of the text is written out. */
export function shown(name: string): string {
  return wellFormed(name).replace(HIDDEN, (found) => {
    if (found === "\n") return "↵";
    if (found === "\t") return "⇥";
    return `⟨${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** For a query: each byte as it is. */
export function encoded(path: string): string {
  let text = "";
  for (const each of path) {
    const code = each.codePointAt(0) ?? 0;
    if (code >= 0xdc80 && code <= 0xdcff) text += `%${(code - 0xdc00).toString(16).toUpperCase()}`;
    else if (code >= 0xd800 && code <= 0xdfff) text += "%EF%BF%BD";
    else text += encodeURIComponent(each);
  }
  return text;
}

/** The path that the box wrote percent-encoded because it is no UTF-8. */
export function decoded(raw: string): string {
  const bytes: number[] = [];
  for (let at = 0; at < raw.length; at += 1) {
    const found = /^%[0-9a-fA-F]{2}/.exec(raw.slice(at, at + 3));
    if (found) {
      bytes.push(Number.parseInt(found[0].slice(1), 16));
      at += 2;
    } else bytes.push(...new TextEncoder().encode(raw[at]));
  }
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at] ?? 0;
    const length = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    try {
      text += decoder.decode(new Uint8Array(bytes.slice(at, at + length)));
      at += length;
    } catch {
      text += String.fromCharCode(0xdc00 + first);
      at += 1;
    }
  }
  return text;
}

/** What is wrong with a name for a file, as a key of the words; null if nothing is. */
export function nameProblem(name: string): "empty" | "slash" | "dots" | "long" | null {
  if (!name.trim()) return "empty";
  if (name.includes("/") || name.includes("\0")) return "slash";
  if (name === "." || name === "..") return "dots";
  return new TextEncoder().encode(name).length > 255 ? "long" : null;
}
