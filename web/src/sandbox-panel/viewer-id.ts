/** Id under which this tab holds mouse and keyboard. */

const STORAGE_KEY = "paddock.viewer";
let currentId: string | null = null;

/**
 * Survives a reload, so that the tab keeps control, but a duplicated tab gets another id: it is in session storage only
 * between two pages.
 */
export function viewerId(): string {
  if (currentId) return currentId;
  try {
    currentId = window.sessionStorage.getItem(STORAGE_KEY);
    window.sessionStorage.removeItem(STORAGE_KEY);
    window.addEventListener("pagehide", () => currentId && window.sessionStorage.setItem(STORAGE_KEY, currentId));
    window.addEventListener("pageshow", () => window.sessionStorage.removeItem(STORAGE_KEY));
  } catch {
    // Without storage a reload gets a new id.
  }
  currentId ??= `tab-${[...crypto.getRandomValues(new Uint8Array(9))].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  return currentId;
}
