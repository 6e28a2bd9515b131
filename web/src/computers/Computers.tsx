import type { BoxView } from "@/session/types";

export type View = "desktop" | "terminal" | "files" | "output" | "browser";

export interface ComputersProps {
  /** Boxes to show, in the order of their tabs. */
  boxes: BoxView[];
  /** The chosen box and view; null if none is. */
  chosen: { sandbox: string; view: View } | null;
  onChoose: (sandbox: string, view: View) => void;
  /** For the output view: what tools did there, newest last. */
  session?: string;
}

/** The agent's computers: a tab for each, and in each its views. */
export function Computers(_props: ComputersProps) {
  return null;
}
