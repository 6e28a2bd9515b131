/** The id by which this tab holds mouse and keyboard. */

const NAME = "paddock.viewer";
let held: string | null = null;

/**
 * It outlives a reload, so that whoever has the input keeps it, but a copy of the tab gets another one: it is in the
 * tab's storage only between two pages.
 */
export function viewerId(): string {
  if (held) return held;
  try {
    held = window.sessionStorage.getItem(NAME);
    window.sessionStorage.removeItem(NAME);
    window.addEventListener("pagehide", () => held && window.sessionStorage.setItem(NAME, held));
    window.addEventListener("pageshow", () => window.sessionStorage.removeItem(NAME));
  } catch {
    // No storage: a reload makes a new viewer of us.
  }
  held ??= `tab-${[...crypto.getRandomValues(new Uint8Array(9))].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  return held;
}
