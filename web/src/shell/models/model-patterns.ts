/** Model name patterns with `*`, from `llm.models`. */

/** Whether the server passes every name to a provider. */
export function acceptsAnyModelName(patterns: readonly string[]): boolean {
  return patterns.includes("*");
}

/** Whether a name is complete and matches a pattern. */
export function matchesModelPattern(name: string, patterns: readonly string[]): boolean {
  if (!name || /[\s*]/.test(name)) return false;
  return patterns.some((pattern) => {
    const [head = "", tail = ""] = pattern.split("*");
    return name.length >= head.length + tail.length && name.startsWith(head) && name.endsWith(tail);
  });
}
