/** File types by name, and parsing of delimited text. */

export type FileType = "image" | "markdown" | "table" | "html" | "json" | "text";

const TYPES_BY_EXTENSION: Record<string, FileType> = {
  png: "image",
  jpg: "image",
  jpeg: "image",
  gif: "image",
  webp: "image",
  avif: "image",
  svg: "image",
  md: "markdown",
  markdown: "markdown",
  csv: "table",
  tsv: "table",
  html: "html",
  htm: "html",
  json: "json",
};

const IMAGE_TYPES: Record<string, string> = { svg: "image/svg+xml", jpg: "image/jpeg" };

export function fileExtension(name: string): string {
  return /\.([A-Za-z0-9]+)$/.exec(name)?.[1]?.toLowerCase() ?? "";
}

export function fileType(name: string): FileType {
  return TYPES_BY_EXTENSION[fileExtension(name)] ?? "text";
}

/** Media type of an image; SVG inside an `img` cannot run scripts. */
export function imageMediaType(name: string): string {
  return IMAGE_TYPES[fileExtension(name)] ?? `image/${fileExtension(name)}`;
}

/** Rows of delimited text with RFC 4180 quoting. At most `maxRows` rows. */
export function parseDelimitedRows(text: string, separator: string, maxRows: number): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  for (let at = 0; at < text.length && rows.length < maxRows; at += 1) {
    const character = text[at];
    if (quoted) {
      if (character !== '"') cell += character;
      else if (text[at + 1] === '"') {
        cell += '"';
        at += 1;
      } else quoted = false;
    } else if (character === '"' && cell === "") quoted = true;
    else if (character === separator) {
      row.push(cell);
      cell = "";
    } else if (character === "\n" || character === "\r") {
      if (character === "\r" && text[at + 1] === "\n") at += 1;
      rows.push([...row, cell]);
      row = [];
      cell = "";
    } else cell += character;
  }
  if (rows.length < maxRows && (cell !== "" || row.length > 0)) rows.push([...row, cell]);
  return rows;
}

/** Decoded text, or null for binary content. */
export function decodeUtf8Text(bytes: Uint8Array, isComplete: boolean): string | null {
  if (bytes.subarray(0, 8192).includes(0)) return null;
  try {
    // The cut may split a character; `stream` drops the rest.
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: !isComplete });
  } catch {
    return null;
  }
}
