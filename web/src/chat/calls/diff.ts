/** What changes between two texts, by lines. */

export interface Line {
  sign: " " | "+" | "-";
  text: string;
}

/** A run of lines around a change; `skipped` lines that are the same stand before it. */
export interface Hunk {
  skipped: number;
  /** Of its first line in the old text, from 1. */
  oldLine: number;
  newLine: number;
  lines: Line[];
}

/** Beyond so many lines on a side in the part that differs, everything there counts as replaced. */
const MOST = 2000;

export function lines(before: string, after: string): Line[] {
  const old = split(before);
  const now = split(after);
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (
    tail < old.length - head &&
    tail < now.length - head &&
    old[old.length - 1 - tail] === now[now.length - 1 - tail]
  )
    tail += 1;
  return [
    ...same(old.slice(0, head)),
    ...middle(old.slice(head, old.length - tail), now.slice(head, now.length - tail)),
    ...same(old.slice(old.length - tail)),
  ];
}

function split(text: string): string[] {
  return text === "" ? [] : text.replace(/\n$/, "").split("\n");
}

function same(texts: string[]): Line[] {
  return texts.map((text) => ({ sign: " ", text }));
}

/** The longest common subsequence, by a table: the parts that differ are small, or else they are all of it. */
function middle(old: string[], now: string[]): Line[] {
  const removed = (texts: string[]): Line[] => texts.map((text) => ({ sign: "-", text }));
  const added = (texts: string[]): Line[] => texts.map((text) => ({ sign: "+", text }));
  if (!old.length || !now.length || old.length > MOST || now.length > MOST) return [...removed(old), ...added(now)];
  const width = now.length + 1;
  const table = new Uint16Array((old.length + 1) * width);
  const at = (row: number, column: number) => table[row * width + column] ?? 0;
  for (let row = old.length - 1; row >= 0; row -= 1)
    for (let column = now.length - 1; column >= 0; column -= 1)
      table[row * width + column] =
        old[row] === now[column] ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1));
  const found: Line[] = [];
  let row = 0;
  let column = 0;
  while (row < old.length && column < now.length) {
    if (old[row] === now[column]) {
      found.push({ sign: " ", text: old[row] ?? "" });
      row += 1;
      column += 1;
    } else if (at(row + 1, column) >= at(row, column + 1)) {
      found.push({ sign: "-", text: old[row] ?? "" });
      row += 1;
    } else {
      found.push({ sign: "+", text: now[column] ?? "" });
      column += 1;
    }
  }
  return [...found, ...removed(old.slice(row)), ...added(now.slice(column))];
}

/** Only what changes, with a few lines around it. */
export function hunks(all: readonly Line[], around = 3): Hunk[] {
  const shown = new Set<number>();
  all.forEach((line, index) => {
    if (line.sign === " ") return;
    for (let near = index - around; near <= index + around; near += 1) shown.add(near);
  });
  const found: Hunk[] = [];
  let current: Hunk | null = null;
  let skipped = 0;
  let oldLine = 1;
  let newLine = 1;
  all.forEach((line, index) => {
    if (shown.has(index)) {
      if (!current) {
        current = { skipped, oldLine, newLine, lines: [] };
        found.push(current);
      }
      current.lines.push(line);
      skipped = 0;
    } else {
      current = null;
      skipped += 1;
    }
    if (line.sign !== "+") oldLine += 1;
    if (line.sign !== "-") newLine += 1;
  });
  return found;
}

export function counts(all: readonly Line[]): { added: number; removed: number } {
  return {
    added: all.filter((line) => line.sign === "+").length,
    removed: all.filter((line) => line.sign === "-").length,
  };
}
