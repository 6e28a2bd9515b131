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
export function lineDiff(before: string, after: string): DiffLine[] {
  const old = splitLines(before);
  const now = splitLines(after);
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (
    tail < old.length - head &&
    tail < now.length - head &&
    old[old.length - 1 - tail] === now[now.length - 1 - tail]
  )
    tail += 1;
  const lines: DiffLine[] = [];
  const keep = (from: number, to: number, shift: number) => {
    for (let at = from; at < to; at += 1)
      lines.push({ sign: " ", text: old[at] ?? "", old: at + 1, new: at + 1 + shift });
  };
  keep(0, head, 0);
  for (const step of diffMiddle(old.slice(head, old.length - tail), now.slice(head, now.length - tail))) {
    lines.push({
      ...step,
      old: step.old === null ? null : step.old + head,
      new: step.new === null ? null : step.new + head,
    });
  }
  keep(old.length - tail, old.length, now.length - old.length);
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

/** Fold long unchanged parts; `around` lines stay beside each change. */
export function foldUnchanged(lines: DiffLine[], around = 3): DiffPart[] {
  const near = new Uint8Array(lines.length);
  lines.forEach((line, at) => {
    if (line.sign === " ") return;
    near.fill(1, Math.max(0, at - around), Math.min(lines.length, at + around + 1));
  });
  const parts: DiffPart[] = [];
  lines.forEach((line, at) => {
    const type = near[at] ? "lines" : "same";
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
function diffMiddle(old: string[], now: string[]): DiffLine[] {
  const most = old.length + now.length;
  if (!old.length || !now.length) return replacementLines(old, now);
  const reach = new Map<number, number>([[1, 0]]);
  const history: Map<number, number>[] = [];
  let steps = 0;
  for (let edits = 0; edits <= most; edits += 1) {
    history.push(new Map(reach));
    steps += reach.size;
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const down =
        diagonal === -edits ||
        (diagonal !== edits && (reach.get(diagonal - 1) ?? -1) < (reach.get(diagonal + 1) ?? -1));
      let x = down ? (reach.get(diagonal + 1) ?? 0) : (reach.get(diagonal - 1) ?? 0) + 1;
      let y = x - diagonal;
      while (x < old.length && y < now.length && old[x] === now[y]) {
        x += 1;
        y += 1;
        steps += 1;
      }
      reach.set(diagonal, x);
      steps += 1;
      if (x >= old.length && y >= now.length) return backtrack(history, old, now);
    }
    if (steps > MAX_STEPS) return replacementLines(old, now);
  }
  return replacementLines(old, now);
}

function backtrack(history: Map<number, number>[], old: string[], now: string[]): DiffLine[] {
  const lines: DiffLine[] = [];
  let x = old.length;
  let y = now.length;
  for (let edits = history.length - 1; edits >= 0; edits -= 1) {
    const reach = history[edits] ?? new Map<number, number>();
    const diagonal = x - y;
    const down =
      diagonal === -edits || (diagonal !== edits && (reach.get(diagonal - 1) ?? -1) < (reach.get(diagonal + 1) ?? -1));
    const from = down ? diagonal + 1 : diagonal - 1;
    const startX = edits === 0 ? 0 : (reach.get(from) ?? 0);
    const startY = edits === 0 ? 0 : startX - from;
    while (x > startX && y > startY) {
      lines.push({ sign: " ", text: old[x - 1] ?? "", old: x, new: y });
      x -= 1;
      y -= 1;
    }
    if (edits === 0) break;
    if (down) lines.push({ sign: "+", text: now[y - 1] ?? "", old: null, new: y });
    else lines.push({ sign: "-", text: old[x - 1] ?? "", old: x, new: null });
    x = startX;
    y = startY;
  }
  return lines.reverse();
}

function replacementLines(old: string[], now: string[]): DiffLine[] {
  return [
    ...old.map((text, at): DiffLine => ({ sign: "-", text, old: at + 1, new: null })),
    ...now.map((text, at): DiffLine => ({ sign: "+", text, old: null, new: at + 1 })),
  ];
}
