/** Finds text that may be the path of a file in a sandbox. */

const ABSOLUTE = /^\/(?:[\p{L}\p{N}_.@+~-]+\/)*[\p{L}\p{N}_.@+~-]+$/u;
const RELATIVE =
  /^(?:\.\/)?(?:[\p{L}\p{N}_@+~-][\p{L}\p{N}_.@+~-]*\/)*[\p{L}\p{N}_@+~-][\p{L}\p{N}_.@+~-]*\.[A-Za-z0-9]{1,8}$/u;
const MAX_LENGTH = 300;
/** Agents start there, so bare names are relative to it. */
const WORKSPACE = "/workspace";

/** Absolute path that a text may mean; null if it cannot be one. */
export function candidateFilePath(text: string): string | null {
  if (text.length > MAX_LENGTH || text.includes("..")) return null;
  if (ABSOLUTE.test(text)) return text;
  return RELATIVE.test(text) ? `${WORKSPACE}/${text.replace(/^\.\//, "")}` : null;
}
