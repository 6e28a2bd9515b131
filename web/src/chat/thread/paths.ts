/** Which pieces of a text may be paths of files in a sandbox. */

const ABSOLUTE = /^\/(?:[\p{L}\p{N}_.@+~-]+\/)*[\p{L}\p{N}_.@+~-]+$/u;
const RELATIVE =
  /^(?:\.\/)?(?:[\p{L}\p{N}_@+~-][\p{L}\p{N}_.@+~-]*\/)*[\p{L}\p{N}_@+~-][\p{L}\p{N}_.@+~-]*\.[A-Za-z0-9]{1,8}$/u;
const LONGEST = 300;
/** Agents begin there, so names without a directory are of files in it. */
const WORKSPACE = "/workspace";

/** The absolute path that a text may mean; null if it is surely none. */
export function candidate(text: string): string | null {
  if (text.length > LONGEST || text.includes("..")) return null;
  if (ABSOLUTE.test(text)) return text;
  return RELATIVE.test(text) ? `${WORKSPACE}/${text.replace(/^\.\//, "")}` : null;
}
