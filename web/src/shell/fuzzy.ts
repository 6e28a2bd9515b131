/** How well a text fits letters that were typed: all of them must be there, in their order. */

const NONE = -1;

/** Higher is better; negative if it does not fit. Beginnings of words, and letters that stand together, count more. */
export function fits(typed: string, text: string): number {
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
    if (next < 0) return NONE;
    together = next === place && place > 0 ? together + 1 : 0;
    const begins = next === 0 || /[\s/_\-.:·]/.test(found[next - 1] ?? "");
    score += 1 + together * 3 + (begins ? 5 : 0) - Math.min(next - place, 10) * 0.2;
    place = next + letter.length;
  }
  return Math.max(0, score - found.length * 0.01);
}

/** Those that fit, the best first; all as they are if nothing was typed. */
export function best<Item>(typed: string, items: Item[], textOf: (item: Item) => string, most = 50): Item[] {
  if (!typed.trim()) return items.slice(0, most);
  return items
    .map((item, place) => ({ item, place, score: fits(typed, textOf(item)) }))
    .filter(({ score }) => score >= 0)
    .sort((one, other) => other.score - one.score || one.place - other.place)
    .slice(0, most)
    .map(({ item }) => item);
}
