/** Rows of a directory tree with open and closed directories. */

import type { FileEntry } from "./sandbox-files";

export type TreeRow =
  | { type: "entry"; entry: FileEntry; level: number; open: boolean }
  | { type: "note"; path: string; level: number; note: "loading" | "empty" | "failed" };

export interface DirectoryListing {
  entries?: FileEntry[];
  failed?: boolean;
}

/** Visible rows from top to bottom. `listed` has the loaded directories. */
export function buildTreeRows(
  root: string,
  open: ReadonlySet<string>,
  listed: (path: string) => DirectoryListing,
  keep: (entry: FileEntry) => boolean = () => true,
): TreeRow[] {
  const rows: TreeRow[] = [];
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

export type TreeMove = { to: number } | { open: string } | { shut: string } | null;

/** Effect of an arrow key on a row, as usual in tree views. */
export function treeKeyMove(rows: TreeRow[], at: number, key: string): TreeMove {
  const row = rows[at];
  const near = (from: number, step: number): TreeMove => {
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
