/** Decides which views stay mounted, so that switching back is immediate. */

import type { View } from "./sandbox-views";

export interface CachedView {
  sandbox: string;
  view: View;
}

const MAX_VIEWS = 6;
const MOST_DESKTOPS = 3;

/** Views to keep, newest first. Fewer desktops are kept, as they cost most. */
export function updateCachedViews(
  before: CachedView[],
  now: CachedView | null,
  here: (kept: CachedView) => boolean,
): CachedView[] {
  const others = before.filter((each) => here(each) && !(now && isSameView(each, now)));
  let desktops = 0;
  return (now ? [now, ...others] : others)
    .filter((each) => each.view !== "desktop" || ++desktops <= MOST_DESKTOPS)
    .slice(0, MAX_VIEWS);
}

export function isSameView(one: CachedView, other: CachedView): boolean {
  return one.sandbox === other.sandbox && one.view === other.view;
}
