import type { SandboxViewName } from "./sandbox-views";

/** Show a view in its own window, reusing an open one. */
export function openPopout(sandbox: string, view: SandboxViewName): void {
  const { pathname, search } = window.location;
  const query = view === "terminal" || view === "files" || view === "preview" ? search : "";
  const address = `/popout/${encodeURIComponent(sandbox)}/${view}${query}`;
  if (pathname + search === address) return;
  window.open(address, `paddock-${sandbox}-${view}`, "popup,width=1320,height=900");
}
