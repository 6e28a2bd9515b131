/** Names with a `*` in `llm.models`, which stands for anything. */

/** Whether a name is a whole one that fits a pattern. */
export function fitsPattern(name: string, patterns: readonly string[]): boolean {
  if (!name || /[\s*]/.test(name)) return false;
  return patterns.some((pattern) => {
    const [head = "", tail = ""] = pattern.split("*");
    return name.length >= head.length + tail.length && name.startsWith(head) && name.endsWith(tail);
  });
}
