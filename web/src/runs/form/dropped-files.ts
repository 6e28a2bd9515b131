/** Files and directories that a user drops or chooses. */

import type { AttachedFiles } from "./input-bundle";

/** Limit of files per directory, so that the browser does not freeze. */
const MAX_FILES = 20_000;

/** Dropped files, by name. Call it while handling the event; the browser clears the data afterwards. */
export async function readDroppedFiles(data: DataTransfer): Promise<Record<string, AttachedFiles>> {
  const entries = Array.from(data.items, (item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  if (entries.length === 0) return readChosenFiles(data.files);
  const dropped: Record<string, AttachedFiles> = {};
  for (const entry of entries) {
    const files: AttachedFiles["files"] = [];
    await walkEntry(entry, "", files);
    dropped[entry.name] = { directory: entry.isDirectory, files };
  }
  return dropped;
}

export function readChosenFiles(files: FileList): Record<string, AttachedFiles> {
  return Object.fromEntries(
    Array.from(files, (file) => [file.name, { directory: false, files: [{ path: file.name, file }] }]),
  );
}

async function walkEntry(entry: FileSystemEntry, prefix: string, collected: AttachedFiles["files"]): Promise<void> {
  if (collected.length >= MAX_FILES)
    throw new Error(`${entry.fullPath}: more than ${MAX_FILES} files; pack them first`);
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    collected.push({ path: prefix ? `${prefix}/${entry.name}` : entry.name, file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  // A directory reader returns up to 100 entries per call, and none at the end.
  for (;;) {
    const batch = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (batch.length === 0) return;
    for (const each of batch) await walkEntry(each, pathBelow(entry, prefix), collected);
  }
}

/** Path relative to the dropped directory. */
function pathBelow(entry: FileSystemEntry, prefix: string): string {
  const depth = entry.fullPath.split("/").filter(Boolean).length;
  return depth <= 1 ? "" : prefix ? `${prefix}/${entry.name}` : entry.name;
}
