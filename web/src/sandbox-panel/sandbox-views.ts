/** Views of a sandbox. */

export type View = "desktop" | "terminal" | "files" | "output" | "browser";

const WITHOUT_SCREEN = new Set(["code", ""]);

/** Views of a kind. Whether it has a screen comes from the server; guessed until then. */
export function viewsOf(kind: string, screen?: boolean): View[] {
  const seen = screen ?? !WITHOUT_SCREEN.has(kind);
  return seen ? ["desktop", "terminal", "files", "output"] : ["terminal", "files", "output"];
}

/** View to show for `wanted`: a browser is shown on its desktop. */
export function availableView(wanted: View, kind: string, screen?: boolean): View {
  const views = viewsOf(kind, screen);
  const view = wanted === "browser" ? "desktop" : wanted;
  return views.includes(view) ? view : (views[0] ?? "terminal");
}

export function isView(text: string | undefined): text is View {
  return ["desktop", "terminal", "files", "output", "browser"].includes(text ?? "");
}
