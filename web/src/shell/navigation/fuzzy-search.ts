/** Subsequence matching: all typed characters must occur in order. */

const NO_MATCH = -1;

/** Score of a match; negative for none. Word starts and adjacent characters score higher. */
export function fuzzyScore(typed: string, text: string): number {
  const wanted = typed.toLowerCase().replace(/\s+/g, "");
  if (!wanted) return 0;
  const found = text.toLowerCase();
  const whole = found.indexOf(typed.trim().toLowerCase());
  if (whole >= 0) return 1_000 - Math.min(whole, 400) - Math.min(found.length, 400) + (whole === 0 ? 200 : 0);
  let score = 0;
  let place = 0;
  let together = 0;
  for (const letter of wanted) {
    const next = found.indexOf(letter, place);
    if (next < 0) return NO_MATCH;
    together = next === place && place > 0 ? together + 1 : 0;
    const begins = next === 0 || /[\s/_\-.:·]/.test(found[next - 1] ?? "");
    score += 1 + together * 3 + (begins ? 5 : 0) - Math.min(next - place, 10) * 0.2;
    place = next + letter.length;
  }
  return Math.max(0, score - found.length * 0.01);
}

/** Matching items, best first; all items if nothing was typed. */
export function bestMatches<Item>(typed: string, items: Item[], textOf: (item: Item) => string, most = 50): Item[] {
  if (!typed.trim()) return items.slice(0, most);
  return items
    .map((item, place) => ({ item, place, score: fuzzyScore(typed, textOf(item)) }))
    .filter(({ score }) => score >= 0)
    .sort((one, other) => other.score - one.score || one.place - other.place)
    .slice(0, most)
    .map(({ item }) => item);
}
