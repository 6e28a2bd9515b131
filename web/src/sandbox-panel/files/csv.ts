/** Delimited text such as CSV. */

export interface ParsedCsv {
  rows: string[][];
  /** Whether the table was cut. */
  more: boolean;
}

/** Parse the first `maxRows` rows; cells are separated by `divider` and may be quoted. */
export function parseCsv(text: string, divider: string, maxRows = 500): ParsedCsv {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  let at = text.charCodeAt(0) === 0xfeff ? 1 : 0;
  const endRow = () => {
    row.push(cell);
    rows.push(row);
    row = [];
    cell = "";
  };
  for (; at < text.length && rows.length < maxRows; at += 1) {
    const char = text[at] ?? "";
    if (quoted) {
      if (char !== '"') cell += char;
      else if (text[at + 1] === '"') {
        cell += '"';
        at += 1;
      } else quoted = false;
    } else if (char === '"' && cell === "") quoted = true;
    else if (char === divider) {
      row.push(cell);
      cell = "";
    } else if (char === "\n") endRow();
    else if (char !== "\r" || text[at + 1] !== "\n") cell += char;
  }
  if (rows.length < maxRows && (cell !== "" || row.length)) endRow();
  return { rows, more: at < text.length };
}

/** Comma, unless the first line has more semicolons or tabs. */
export function detectDelimiter(text: string, ending: string): string {
  if (ending === "tsv" || ending === "tab") return "\t";
  const line = text.slice(0, Math.max(0, text.indexOf("\n")) || 2000);
  const count = (divider: string) => line.split(divider).length;
  return [",", ";", "\t"].reduce((best, each) => (count(each) > count(best) ? each : best));
}
