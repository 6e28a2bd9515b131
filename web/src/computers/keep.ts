/** Which views stay as they are while others are looked at, so that coming back is immediate. */

import type { View } from "./views";

export interface Kept {
  sandbox: string;
  view: View;
}

const MOST = 6;
const MOST_DESKTOPS = 3;

/** Those to keep, the newest first, once `now` is looked at. Desktops cost most, so fewer of them stay. */
export function keep(before: Kept[], now: Kept | null, here: (kept: Kept) => boolean): Kept[] {
  const others = before.filter((each) => here(each) && !(now && same(each, now)));
  let desktops = 0;
  return (now ? [now, ...others] : others)
    .filter((each) => each.view !== "desktop" || ++desktops <= MOST_DESKTOPS)
    .slice(0, MOST);
}

export function same(one: Kept, other: Kept): boolean {
  return one.sandbox === other.sandbox && one.view === other.view;
}
