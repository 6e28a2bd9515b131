/** Model name patterns with `*`, from `llm.models`. */

/** Whether a name is complete and matches a pattern. */
export function matchesPattern(name: string, patterns: readonly string[]): boolean {
  if (!name || /[\s*]/.test(name)) return false;
  return patterns.some((pattern) => {
    const [head = "", tail = ""] = pattern.split("*");
    return name.length >= head.length + tail.length && name.startsWith(head) && name.endsWith(tail);
  });
}
