/** Finds the end of an event stream without reading all of it. */

const MAX_EVENTS_BEFORE_END = 1_000;

/**
 * Number of an event near the end, with at most 1,000 events after it; 0 for a short stream.
 * `readNext` returns the number of the first event after a number, or null if there is none.
 */
export async function findLastEventNumber(readNext: (after: number) => Promise<number | null>): Promise<number> {
  let known = 0;
  let step = MAX_EVENTS_BEFORE_END;
  for (let found = await readNext(step); found !== null; found = await readNext(known + step)) {
    known = found;
    step *= 4;
  }
  let end = known + step;
  while (end - known > MAX_EVENTS_BEFORE_END) {
    const middle = known + Math.floor((end - known) / 2);
    const found = await readNext(middle);
    if (found === null) end = middle;
    else known = found;
  }
  return known;
}
