/** Decides which views stay mounted, so that switching back is immediate. */

import type { SandboxViewName } from "./sandbox-views";

export interface CachedSandboxView {
  sandbox: string;
  view: SandboxViewName;
}

const MAX_VIEWS = 6;
const MAX_DESKTOPS = 3;

/** Views to keep, newest first. Fewer desktops are kept, as they cost most. */
export function updateCachedViews(
  before: CachedSandboxView[],
  current: CachedSandboxView | null,
  isAvailable: (view: CachedSandboxView) => boolean,
): CachedSandboxView[] {
  const others = before.filter((each) => isAvailable(each) && !(current && isSameView(each, current)));
  let desktops = 0;
  return (current ? [current, ...others] : others)
    .filter((each) => each.view !== "desktop" || ++desktops <= MAX_DESKTOPS)
    .slice(0, MAX_VIEWS);
}

export function isSameView(one: CachedSandboxView, other: CachedSandboxView): boolean {
  return one.sandbox === other.sandbox && one.view === other.view;
}
