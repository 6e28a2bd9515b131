/** The rows of a tree of directories, some of them open. */

import type { Entry } from "./box-files";

export type Row =
  | { type: "entry"; entry: Entry; level: number; open: boolean }
  | { type: "note"; path: string; level: number; note: "loading" | "empty" | "failed" };

export interface Listed {
  entries?: Entry[];
  failed?: boolean;
}

/** What is seen, from the top down. `listed` knows the directories that were asked for. */
export function rowsOf(
  root: string,
  open: ReadonlySet<string>,
  listed: (path: string) => Listed,
  keep: (entry: Entry) => boolean = () => true,
): Row[] {
  const rows: Row[] = [];
  const add = (path: string, level: number) => {
    const { entries, failed } = listed(path);
    if (!entries) {
      rows.push({ type: "note", path, level, note: failed ? "failed" : "loading" });
      return;
    }
    const kept = entries.filter(keep);
    if (!kept.length) rows.push({ type: "note", path, level, note: "empty" });
    for (const entry of kept) {
      const isOpen = entry.type === "directory" && open.has(entry.path);
      rows.push({ type: "entry", entry, level, open: isOpen });
      if (isOpen) add(entry.path, level + 1);
    }
  };
  add(root, 1);
  return rows;
}

export type Move = { to: number } | { open: string } | { shut: string } | null;

/** What an arrow key does on a row, as trees do everywhere. */
export function onKey(rows: Row[], at: number, key: string): Move {
  const row = rows[at];
  const near = (from: number, step: number): Move => {
    for (let next = from; next >= 0 && next < rows.length; next += step)
      if (rows[next]?.type === "entry") return { to: next };
    return null;
  };
  if (key === "ArrowDown") return near(at + 1, 1);
  if (key === "ArrowUp") return near(at - 1, -1);
  if (key === "Home") return near(0, 1);
  if (key === "End") return near(rows.length - 1, -1);
  if (row?.type !== "entry") return null;
  if (key === "ArrowRight" && row.entry.type === "directory")
    return row.open ? near(at + 1, 1) : { open: row.entry.path };
  if (key === "ArrowLeft") {
    if (row.open) return { shut: row.entry.path };
    for (let above = at - 1; above >= 0; above -= 1) if ((rows[above]?.level ?? 0) < row.level) return { to: above };
  }
  return null;
}
