/** Rows of a directory tree with open and closed directories. */

import type { FileEntry } from "./sandbox-files";

export type FileTreeRow =
  | { type: "entry"; entry: FileEntry; level: number; open: boolean }
  | { type: "note"; path: string; level: number; note: "loading" | "empty" | "failed" };

export interface DirectoryListing {
  entries?: FileEntry[];
  failed?: boolean;
}

/** Visible rows from top to bottom. `listingOf` returns the loaded directories. */
export function buildFileTreeRows(
  root: string,
  open: ReadonlySet<string>,
  listingOf: (path: string) => DirectoryListing,
  isShown: (entry: FileEntry) => boolean = () => true,
): FileTreeRow[] {
  const rows: FileTreeRow[] = [];
  const add = (path: string, level: number) => {
    const { entries, failed } = listingOf(path);
    if (!entries) {
      rows.push({ type: "note", path, level, note: failed ? "failed" : "loading" });
      return;
    }
    const shownEntries = entries.filter(isShown);
    if (!shownEntries.length) rows.push({ type: "note", path, level, note: "empty" });
    for (const entry of shownEntries) {
      const isOpen = entry.type === "directory" && open.has(entry.path);
      rows.push({ type: "entry", entry, level, open: isOpen });
      if (isOpen) add(entry.path, level + 1);
    }
  };
  add(root, 1);
  return rows;
}

export type FileTreeMove = { to: number } | { open: string } | { close: string } | null;

/** Effect of an arrow key on a row, as usual in tree views. */
export function fileTreeKeyMove(rows: FileTreeRow[], at: number, key: string): FileTreeMove {
  const row = rows[at];
  const nearestEntry = (from: number, step: number): FileTreeMove => {
    for (let next = from; next >= 0 && next < rows.length; next += step)
      if (rows[next]?.type === "entry") return { to: next };
    return null;
  };
  if (key === "ArrowDown") return nearestEntry(at + 1, 1);
  if (key === "ArrowUp") return nearestEntry(at - 1, -1);
  if (key === "Home") return nearestEntry(0, 1);
  if (key === "End") return nearestEntry(rows.length - 1, -1);
  if (row?.type !== "entry") return null;
  if (key === "ArrowRight" && row.entry.type === "directory")
    return row.open ? nearestEntry(at + 1, 1) : { open: row.entry.path };
  if (key === "ArrowLeft") {
    if (row.open) return { close: row.entry.path };
    for (let above = at - 1; above >= 0; above -= 1) if ((rows[above]?.level ?? 0) < row.level) return { to: above };
  }
  return null;
}
