/** Subsequence matching: all typed characters must occur in order. */

const NO_MATCH = -1;

/** Score of a match; negative for none. Word starts and adjacent characters score higher. */
export function fuzzyScore(typed: string, text: string): number {
  const query = typed.toLowerCase().replace(/\s+/g, "");
  if (!query) return 0;
  const found = text.toLowerCase();
  const substringIndex = found.indexOf(typed.trim().toLowerCase());
  if (substringIndex >= 0)
    return 1_000 - Math.min(substringIndex, 400) - Math.min(found.length, 400) + (substringIndex === 0 ? 200 : 0);
  let score = 0;
  let position = 0;
  let adjacent = 0;
  for (const character of query) {
    const next = found.indexOf(character, position);
    if (next < 0) return NO_MATCH;
    adjacent = next === position && position > 0 ? adjacent + 1 : 0;
    const isWordStart = next === 0 || /[\s/_\-.:·]/.test(found[next - 1] ?? "");
    score += 1 + adjacent * 3 + (isWordStart ? 5 : 0) - Math.min(next - position, 10) * 0.2;
    position = next + character.length;
  }
  return Math.max(0, score - found.length * 0.01);
}

/** Matching items, best first; all items if nothing was typed. */
export function bestFuzzyMatches<Item>(
  typed: string,
  items: Item[],
  textOf: (item: Item) => string,
  limit = 50,
): Item[] {
  if (!typed.trim()) return items.slice(0, limit);
  return items
    .map((item, index) => ({ item, index, score: fuzzyScore(typed, textOf(item)) }))
    .filter(({ score }) => score >= 0)
    .sort((one, other) => other.score - one.score || one.index - other.index)
    .slice(0, limit)
    .map(({ item }) => item);
}
