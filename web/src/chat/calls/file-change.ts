/** File changes of a call, and the current content of the file. */

import { ApiError, fetchRaw } from "@/api/client";
import { toolCategory } from "./tool-labels";

const MAX_BYTES = 512 * 1024;
/** Base directory of relative paths in tool arguments. */
const WORKSPACE = "/workspace";

export function isFileWriteCall(tool: string, args: Record<string, unknown>): boolean {
  return toolCategory(tool) === "write" && typeof args.content === "string" && writtenFilePath(args) !== "";
}

export function writtenFilePath(args: Record<string, unknown>): string {
  const path = args.path ?? args.file_path;
  if (typeof path !== "string" || path === "") return "";
  return path.startsWith("/") || /^[A-Za-z]:\\/.test(path) ? path : `${WORKSPACE}/${path.replace(/^\.\//, "")}`;
}

const REPLACEMENT_KEYS = [
  ["old_string", "new_string"],
  ["old_str", "new_str"],
  ["old_text", "new_text"],
  ["old", "new"],
] as const;

/** Old and new text of a replacement, by the argument names of editing tools; null if there are none. */
export function findTextReplacement(
  args: Record<string, unknown>,
): { before: string; after: string; rest: Record<string, unknown> } | null {
  for (const [oldKey, newKey] of REPLACEMENT_KEYS) {
    const { [oldKey]: before, [newKey]: after, ...rest } = args;
    if (typeof before === "string" && typeof after === "string") return { before, after, rest };
  }
  return null;
}

export interface CurrentFile {
  /** Null if the file is binary or too large. */
  text: string | null;
  isNew: boolean;
}

/** Current content of a file in the sandbox. */
export async function readCurrentFile(sandbox: string, path: string, signal?: AbortSignal): Promise<CurrentFile> {
  try {
    const response = await fetchRaw("GET", `/v1/sandboxes/${sandbox}/proxy/44772/files/download`, {
      query: { path },
      headers: { Range: `bytes=0-${MAX_BYTES}` },
      signal,
    });
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (bytes.length > MAX_BYTES || bytes.includes(0)) return { text: null, isNew: false };
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), isNew: false };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return { text: "", isNew: true };
    // An empty file has no byte range.
    if (error instanceof ApiError && error.status === 416) return { text: "", isNew: false };
    if (error instanceof TypeError) return { text: null, isNew: false };
    throw error;
  }
}
