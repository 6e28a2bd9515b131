/** What sort of thing a file is, by its name; and tables as text. */

export type FileSort = "image" | "markdown" | "table" | "html" | "json" | "text";

const SORTS: Record<string, FileSort> = {
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

const PICTURES: Record<string, string> = { svg: "image/svg+xml", jpg: "image/jpeg" };

export function ending(name: string): string {
  return /\.([A-Za-z0-9]+)$/.exec(name)?.[1]?.toLowerCase() ?? "";
}

export function sortOf(name: string): FileSort {
  return SORTS[ending(name)] ?? "text";
}

/** What a browser must be told that a picture is; pictures that are documents do nothing inside an `img`. */
export function pictureType(name: string): string {
  return PICTURES[ending(name)] ?? `image/${ending(name)}`;
}

/** Rows of a table: quotes, doubled quotes and line breaks inside them as RFC 4180 has it. At most `most` rows. */
export function rowsOf(text: string, separator: string, most: number): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  for (let at = 0; at < text.length && rows.length < most; at += 1) {
    const letter = text[at];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[at + 1] === '"') {
        cell += '"';
        at += 1;
      } else quoted = false;
    } else if (letter === '"' && cell === "") quoted = true;
    else if (letter === separator) {
      row.push(cell);
      cell = "";
    } else if (letter === "\n" || letter === "\r") {
      if (letter === "\r" && text[at + 1] === "\n") at += 1;
      rows.push([...row, cell]);
      row = [];
      cell = "";
    } else cell += letter;
  }
  if (rows.length < most && (cell !== "" || row.length > 0)) rows.push([...row, cell]);
  return rows;
}

/** The text of some bytes, or null if they are none. */
export function decoded(bytes: Uint8Array, whole: boolean): string | null {
  if (bytes.subarray(0, 8192).includes(0)) return null;
  try {
    // A cut may go through a letter; `stream` leaves such a rest out.
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: !whole });
  } catch {
    return null;
  }
}
