/** Which view of a box shows what a tool does. */

import type { Attention } from "./types";

const SCREEN =
  /^(browser|mobile)_|mouse|keys|clipboard|window|screen|cursor|^scroll$|^input_text$|_apps?$|^accessibility/;
const COMMAND = /shell|bash|terminal|exec|ipython|python_cell/i;
const FILES = /(^|_)(files?|director(y|ies)|read|write|edit|delete|move|patch)(_|$)/i;

/** By the tool's name in the box; those of agent programs have other names for the same things. */
export function viewOf(tool: string): Attention["view"] {
  if (SCREEN.test(tool)) return "desktop";
  if (COMMAND.test(tool)) return "terminal";
  if (FILES.test(tool)) return "files";
  return "output";
}
