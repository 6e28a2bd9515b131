/** Views of a sandbox. */

export type SandboxViewName = "desktop" | "terminal" | "files" | "preview" | "output" | "network" | "browser";

const VIEWS_OF_ALL = ["terminal", "files", "preview", "output", "network"] as const;
const WITHOUT_SCREEN = new Set(["code", ""]);

/** Views of a kind. Whether it has a screen comes from the server; guessed until then. */
export function viewsForKind(kind: string, screen?: boolean): SandboxViewName[] {
  const hasScreen = screen ?? !WITHOUT_SCREEN.has(kind);
  return hasScreen ? ["desktop", ...VIEWS_OF_ALL] : [...VIEWS_OF_ALL];
}

/** View to show for `requested`: a browser is shown on its desktop. */
export function availableView(requested: SandboxViewName, kind: string, screen?: boolean): SandboxViewName {
  const views = viewsForKind(kind, screen);
  const view = requested === "browser" ? "desktop" : requested;
  return views.includes(view) ? view : (views[0] ?? "terminal");
}

export function isSandboxViewName(text: string | undefined): text is SandboxViewName {
  return ["desktop", ...VIEWS_OF_ALL, "browser"].includes(text ?? "");
}
