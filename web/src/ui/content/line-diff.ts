/** Line diff of two texts. */

export interface DiffLine {
  sign: " " | "-" | "+";
  text: string;
  /** Line numbers in the old and new text, from 1; null where the line is absent. */
  old: number | null;
  new: number | null;
}

/** Step limit; beyond it the middle counts as entirely changed, so that the page does not freeze. */
const MAX_STEPS = 500_000;

/** All lines of both texts: unchanged, removed and added. */
export function diffLines(before: string, after: string): DiffLine[] {
  const oldLines = splitLines(before);
  const newLines = splitLines(after);
  let head = 0;
  while (head < oldLines.length && head < newLines.length && oldLines[head] === newLines[head]) head += 1;
  let tail = 0;
  while (
    tail < oldLines.length - head &&
    tail < newLines.length - head &&
    oldLines[oldLines.length - 1 - tail] === newLines[newLines.length - 1 - tail]
  )
    tail += 1;
  const lines: DiffLine[] = [];
  const keepLines = (from: number, to: number, shift: number) => {
    for (let at = from; at < to; at += 1)
      lines.push({ sign: " ", text: oldLines[at] ?? "", old: at + 1, new: at + 1 + shift });
  };
  keepLines(0, head, 0);
  for (const step of diffMiddle(
    oldLines.slice(head, oldLines.length - tail),
    newLines.slice(head, newLines.length - tail),
  )) {
    lines.push({
      ...step,
      old: step.old === null ? null : step.old + head,
      new: step.new === null ? null : step.new + head,
    });
  }
  keepLines(oldLines.length - tail, oldLines.length, newLines.length - oldLines.length);
  return lines;
}

/** Numbers of removed and added lines. */
export function countChanges(lines: DiffLine[]): { removed: number; added: number } {
  return {
    removed: lines.filter((line) => line.sign === "-").length,
    added: lines.filter((line) => line.sign === "+").length,
  };
}

export type DiffPart = { type: "lines"; lines: DiffLine[] } | { type: "same"; lines: DiffLine[] };

/** Fold long unchanged parts; `contextLines` lines stay around each change. */
export function foldUnchangedLines(lines: DiffLine[], contextLines = 3): DiffPart[] {
  const isNear = new Uint8Array(lines.length);
  lines.forEach((line, at) => {
    if (line.sign === " ") return;
    isNear.fill(1, Math.max(0, at - contextLines), Math.min(lines.length, at + contextLines + 1));
  });
  const parts: DiffPart[] = [];
  lines.forEach((line, at) => {
    const type = isNear[at] ? "lines" : "same";
    const last = parts.at(-1);
    if (last?.type === type) last.lines.push(line);
    else parts.push({ type, lines: [line] });
  });
  // Folding one or two lines would save no space.
  return parts.map((part) => (part.type === "same" && part.lines.length < 3 ? { ...part, type: "lines" } : part));
}

function splitLines(text: string): string[] {
  if (text === "") return [];
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Myers' shortest edit script. */
function diffMiddle(oldLines: string[], newLines: string[]): DiffLine[] {
  const maxEdits = oldLines.length + newLines.length;
  if (!oldLines.length || !newLines.length) return replacementLines(oldLines, newLines);
  const furthestX = new Map<number, number>([[1, 0]]);
  const history: Map<number, number>[] = [];
  let steps = 0;
  for (let edits = 0; edits <= maxEdits; edits += 1) {
    history.push(new Map(furthestX));
    steps += furthestX.size;
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const down =
        diagonal === -edits ||
        (diagonal !== edits && (furthestX.get(diagonal - 1) ?? -1) < (furthestX.get(diagonal + 1) ?? -1));
      let x = down ? (furthestX.get(diagonal + 1) ?? 0) : (furthestX.get(diagonal - 1) ?? 0) + 1;
      let y = x - diagonal;
      while (x < oldLines.length && y < newLines.length && oldLines[x] === newLines[y]) {
        x += 1;
        y += 1;
        steps += 1;
      }
      furthestX.set(diagonal, x);
      steps += 1;
      if (x >= oldLines.length && y >= newLines.length) return backtrack(history, oldLines, newLines);
    }
    if (steps > MAX_STEPS) return replacementLines(oldLines, newLines);
  }
  return replacementLines(oldLines, newLines);
}

function backtrack(history: Map<number, number>[], oldLines: string[], newLines: string[]): DiffLine[] {
  const lines: DiffLine[] = [];
  let x = oldLines.length;
  let y = newLines.length;
  for (let edits = history.length - 1; edits >= 0; edits -= 1) {
    const furthestX = history[edits] ?? new Map<number, number>();
    const diagonal = x - y;
    const down =
      diagonal === -edits ||
      (diagonal !== edits && (furthestX.get(diagonal - 1) ?? -1) < (furthestX.get(diagonal + 1) ?? -1));
    const from = down ? diagonal + 1 : diagonal - 1;
    const startX = edits === 0 ? 0 : (furthestX.get(from) ?? 0);
    const startY = edits === 0 ? 0 : startX - from;
    while (x > startX && y > startY) {
      lines.push({ sign: " ", text: oldLines[x - 1] ?? "", old: x, new: y });
      x -= 1;
      y -= 1;
    }
    if (edits === 0) break;
    if (down) lines.push({ sign: "+", text: newLines[y - 1] ?? "", old: null, new: y });
    else lines.push({ sign: "-", text: oldLines[x - 1] ?? "", old: x, new: null });
    x = startX;
    y = startY;
  }
  return lines.reverse();
}

function replacementLines(oldLines: string[], newLines: string[]): DiffLine[] {
  return [
    ...oldLines.map((text, at): DiffLine => ({ sign: "-", text, old: at + 1, new: null })),
    ...newLines.map((text, at): DiffLine => ({ sign: "+", text, old: null, new: at + 1 })),
  ];
}
