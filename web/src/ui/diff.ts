/** What is different between two texts, line by line. */

export interface DiffLine {
  sign: " " | "-" | "+";
  text: string;
  /** Its number in the old and in the new text, from 1; null where it is not in that one. */
  old: number | null;
  new: number | null;
}

/** Steps of the search after which the middle is taken for wholly different, so that no text holds the page up. */
const MOST_STEPS = 500_000;

/** All lines of both texts: what stayed, what went and what came. */
export function lineDiff(before: string, after: string): DiffLine[] {
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
  const lines: DiffLine[] = [];
  const keep = (from: number, to: number, shift: number) => {
    for (let at = from; at < to; at += 1)
      lines.push({ sign: " ", text: old[at] ?? "", old: at + 1, new: at + 1 + shift });
  };
  keep(0, head, 0);
  for (const step of middle(old.slice(head, old.length - tail), now.slice(head, now.length - tail))) {
    lines.push({
      ...step,
      old: step.old === null ? null : step.old + head,
      new: step.new === null ? null : step.new + head,
    });
  }
  keep(old.length - tail, old.length, now.length - old.length);
  return lines;
}

/** How many lines went and came. */
export function diffCount(lines: DiffLine[]): { removed: number; added: number } {
  return {
    removed: lines.filter((line) => line.sign === "-").length,
    added: lines.filter((line) => line.sign === "+").length,
  };
}

export type DiffPart = { type: "lines"; lines: DiffLine[] } | { type: "same"; lines: DiffLine[] };

/** Long stretches that stayed are put apart, to be folded; `around` lines of each remain beside what changed. */
export function foldSame(lines: DiffLine[], around = 3): DiffPart[] {
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
  // A fold that hides one or two lines takes as much room as they do.
  return parts.map((part) => (part.type === "same" && part.lines.length < 3 ? { ...part, type: "lines" } : part));
}

function split(text: string): string[] {
  if (text === "") return [];
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Myers' shortest way from one list to the other. */
function middle(old: string[], now: string[]): DiffLine[] {
  const most = old.length + now.length;
  if (!old.length || !now.length) return replaced(old, now);
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
      if (x >= old.length && y >= now.length) return walked(history, old, now);
    }
    if (steps > MOST_STEPS) return replaced(old, now);
  }
  return replaced(old, now);
}

function walked(history: Map<number, number>[], old: string[], now: string[]): DiffLine[] {
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

function replaced(old: string[], now: string[]): DiffLine[] {
  return [
    ...old.map((text, at): DiffLine => ({ sign: "-", text, old: at + 1, new: null })),
    ...now.map((text, at): DiffLine => ({ sign: "+", text, old: null, new: at + 1 })),
  ];
}
