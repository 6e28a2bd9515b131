import type { View } from "./views";

/** Show a view in a window of its own. The same one is shown again if it is there. */
export function popOut(sandbox: string, view: View): void {
  const { pathname, search } = window.location;
  const query = view === "terminal" || view === "files" ? search : "";
  const address = `/popout/${encodeURIComponent(sandbox)}/${view}${query}`;
  if (pathname + search === address) return;
  window.open(address, `paddock-${sandbox}-${view}`, "popup,width=1320,height=900");
}
