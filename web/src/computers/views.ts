/** Which views a computer has. */

export type View = "desktop" | "terminal" | "files" | "output" | "browser";

const WITHOUT_SCREEN = new Set(["code", ""]);

/** The views of a kind. What kinds there are, and whether they have a screen, the server says; until then we guess. */
export function viewsOf(kind: string, screen?: boolean): View[] {
  const seen = screen ?? !WITHOUT_SCREEN.has(kind);
  return seen ? ["desktop", "terminal", "files", "output"] : ["terminal", "files", "output"];
}

/** The view to show of a kind if `wanted` is asked for: a browser is looked at on its desktop. */
export function fitting(wanted: View, kind: string, screen?: boolean): View {
  const views = viewsOf(kind, screen);
  const view = wanted === "browser" ? "desktop" : wanted;
  return views.includes(view) ? view : (views[0] ?? "terminal");
}

export function isView(text: string | undefined): text is View {
  return ["desktop", "terminal", "files", "output", "browser"].includes(text ?? "");
}
