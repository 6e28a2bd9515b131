/**
 * Paths in a sandbox. A name may contain any byte except `/` and NUL: invalid UTF-8 is kept as lone surrogates, as in
 * Python, so that every path is one string.
 */

export function joinPath(directory: string, name: string): string {
  return directory === "/" ? `/${name}` : `${directory}/${name}`;
}

export function parentPath(path: string): string {
  const at = path.lastIndexOf("/");
  return at <= 0 ? "/" : path.slice(0, at);
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1) || "/";
}

/** Lower-case file extension. */
export function fileExtension(path: string): string {
  const name = baseName(path);
  const at = name.lastIndexOf(".");
  return at > 0 ? name.slice(at + 1).toLowerCase() : "";
}

/** Absolute path without `.`, `..` and double slashes. */
export function normalizePath(path: string): string {
  const parts: string[] = [];
  for (const part of path.split("/")) {
    if (part === "..") parts.pop();
    else if (part && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

/** All ancestor directories of a path, and the path itself. */
export function ancestorPaths(path: string): string[] {
  const parts = normalizePath(path).split("/").filter(Boolean);
  return ["/", ...parts.map((_, at) => `/${parts.slice(0, at + 1).join("/")}`)];
}

export function isPathBelow(path: string, directory: string): boolean {
  return directory === "/" || path === directory || path.startsWith(`${directory}/`);
}

const LONE_SURROGATE = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g;
/** Text that is valid in a URL: invalid bytes are replaced. */
export function wellFormedText(text: string): string {
  return text.replace(LONE_SURROGATE, "\uFFFD");
}

/** Invisible characters, except the joiner that emoji use. */
const INVISIBLE = /(?!\u200D)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Name for display: line breaks, invisible and direction-changing characters are escaped. */
export function safeDisplayName(name: string): string {
  return wellFormedText(name).replace(INVISIBLE, (found) => {
    if (found === "\n") return "↵";
    if (found === "\t") return "⇥";
    return `⟨${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** Percent-encode a path byte by byte. */
export function percentEncodePath(path: string): string {
  let text = "";
  for (const each of path) {
    const code = each.codePointAt(0) ?? 0;
    if (code >= 0xdc80 && code <= 0xdcff) text += `%${(code - 0xdc00).toString(16).toUpperCase()}`;
    else if (code >= 0xd800 && code <= 0xdfff) text += "%EF%BF%BD";
    else text += encodeURIComponent(each);
  }
  return text;
}

/** Decode a path that the sandbox percent-encoded because it is not UTF-8. */
export function percentDecodePath(raw: string): string {
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

/** Text key of a file name's problem; null if it is valid. */
export function fileNameProblem(name: string): "empty" | "slash" | "dots" | "long" | null {
  if (!name.trim()) return "empty";
  if (name.includes("/") || name.includes("\0")) return "slash";
  if (name === "." || name === "..") return "dots";
  return new TextEncoder().encode(name).length > 255 ? "long" : null;
}
