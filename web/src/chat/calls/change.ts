/** What a call would change in a file, and how the file is now. */

import { ApiError, fetchRaw } from "@/api/client";
import { sortOf } from "./words";

const LARGEST = 512 * 1024;
/** Where relative paths of tools begin. */
const HOME = "/workspace";

export function isWrite(tool: string, given: Record<string, unknown>): boolean {
  return sortOf(tool) === "write" && typeof given.content === "string" && writtenTo(given) !== "";
}

export function writtenTo(given: Record<string, unknown>): string {
  const path = given.path ?? given.file_path;
  if (typeof path !== "string" || path === "") return "";
  return path.startsWith("/") || /^[A-Za-z]:\\/.test(path) ? path : `${HOME}/${path.replace(/^\.\//, "")}`;
}

const PAIRS = [
  ["old_string", "new_string"],
  ["old_str", "new_str"],
  ["old_text", "new_text"],
  ["old", "new"],
] as const;

/** The two sides of a replacement, as editing tools name them; null if there are none. */
export function replaced(
  given: Record<string, unknown>,
): { before: string; after: string; rest: Record<string, unknown> } | null {
  for (const [old, now] of PAIRS) {
    const { [old]: before, [now]: after, ...rest } = given;
    if (typeof before === "string" && typeof after === "string") return { before, after, rest };
  }
  return null;
}

export interface Earlier {
  /** Null if it is no text, or too much of it. */
  text: string | null;
  isNew: boolean;
}

/** A file of a box as it is now. */
export async function before(sandbox: string, path: string, signal?: AbortSignal): Promise<Earlier> {
  try {
    const response = await fetchRaw("GET", `/v1/sandboxes/${sandbox}/proxy/44772/files/download`, {
      query: { path },
      headers: { Range: `bytes=0-${LARGEST}` },
      signal,
    });
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (bytes.length > LARGEST || bytes.includes(0)) return { text: null, isNew: false };
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), isNew: false };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return { text: "", isNew: true };
    // An empty file has no range.
    if (error instanceof ApiError && error.status === 416) return { text: "", isNew: false };
    if (error instanceof TypeError) return { text: null, isNew: false };
    throw error;
  }
}
