/** Files and directories that a person drops or chooses. */

import type { Attached } from "./bundle";

/** Most files that are taken from one directory: more is hardly meant, and would make the browser stop. */
const MOST = 20_000;

/** What was dropped, by name. Call it while the event is handled; afterwards the browser has forgotten it. */
export async function dropped(data: DataTransfer): Promise<Record<string, Attached>> {
  const entries = Array.from(data.items, (item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  if (entries.length === 0) return chosen(data.files);
  const given: Record<string, Attached> = {};
  for (const entry of entries) {
    const files: Attached["files"] = [];
    await walk(entry, "", files);
    given[entry.name] = { directory: entry.isDirectory, files };
  }
  return given;
}

export function chosen(files: FileList): Record<string, Attached> {
  return Object.fromEntries(
    Array.from(files, (file) => [file.name, { directory: false, files: [{ path: file.name, file }] }]),
  );
}

async function walk(entry: FileSystemEntry, prefix: string, into: Attached["files"]): Promise<void> {
  if (into.length >= MOST) throw new Error(`${entry.fullPath}: more than ${MOST} files; pack them first`);
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    into.push({ path: prefix ? `${prefix}/${entry.name}` : entry.name, file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  // A reader gives a hundred at a time, and none when there are no more.
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return;
    for (const each of some) await walk(each, inside(entry, prefix), into);
  }
}

/** Paths begin below the directory that was dropped. */
function inside(entry: FileSystemEntry, prefix: string): string {
  const depth = entry.fullPath.split("/").filter(Boolean).length;
  return depth <= 1 ? "" : prefix ? `${prefix}/${entry.name}` : entry.name;
}
