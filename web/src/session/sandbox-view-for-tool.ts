/** Maps a tool to the sandbox view that shows it. */

import type { AgentAttention } from "./types";

const SCREEN =
  /^(browser|mobile)_|mouse|keys|clipboard|window|screen|cursor|^scroll$|^input_text$|_apps?$|^accessibility/;
const COMMAND = /shell|bash|terminal|exec|ipython|python_cell/i;
const FILES = /(^|_)(files?|director(y|ies)|read|write|edit|delete|move|patch)(_|$)/i;

/** By the tool's name in the sandbox, or similar names of agent programs. */
export function sandboxViewForTool(tool: string): AgentAttention["view"] {
  if (SCREEN.test(tool)) return "desktop";
  if (COMMAND.test(tool)) return "terminal";
  if (FILES.test(tool)) return "files";
  return "output";
}
