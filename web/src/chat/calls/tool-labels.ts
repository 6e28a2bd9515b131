/** Labels of tools: category, icon, title, and a one-line summary of the arguments. */

import {
  AppWindow,
  ArrowLeftRight,
  CircleHelp,
  FileOutput,
  FilePen,
  FileText,
  FolderTree,
  Globe,
  Keyboard,
  ListChecks,
  type LucideIcon,
  Monitor,
  MousePointer2,
  Smartphone,
  SquareTerminal,
  Trash2,
  Wrench,
} from "lucide-react";
import type { CallView } from "@/session/types";

export type ToolCategory =
  | "command"
  | "python"
  | "read"
  | "write"
  | "edit"
  | "list"
  | "move"
  | "delete"
  | "look"
  | "mouse"
  | "keyboard"
  | "window"
  | "browser"
  | "phone"
  | "transfer"
  | "keep"
  | "network"
  | "question"
  | "plan"
  | "other";

const CATEGORY_PATTERNS: readonly [RegExp, ToolCategory][] = [
  [/^run_ipython_cell$|python/, "python"],
  [/^(run|exec|execute)_|shell|bash|terminal|^command$/, "command"],
  [/^ask_user$/, "question"],
  [/^update_plan$/, "plan"],
  [/^(move_between_sandboxes|screenshot_to_sandbox|session_file_to_sandbox)$/, "transfer"],
  [/^keep_file$/, "keep"],
  [/^request_network_access$/, "network"],
  [/^mobile_/, "phone"],
  [/^browser_/, "browser"],
  [/screenshot|screen|accessibility_tree/, "look"],
  [/mouse|^scroll$|cursor/, "mouse"],
  [/^press_keys$|^input_text$|clipboard/, "keyboard"],
  [/window|_apps?$|desktop|list_installed/, "window"],
  [/^(edit|replace|apply)_|patch/, "edit"],
  [/^(write|append)_|^create_(file|directory)|^make_/, "write"],
  [/^(delete|remove)_/, "delete"],
  [/^(move|copy|rename)_/, "move"],
  [/^(list|search|find)_|directory/, "list"],
  [/^(read|get|stat)_/, "read"],
];

const ICONS: Record<ToolCategory, LucideIcon> = {
  command: SquareTerminal,
  python: SquareTerminal,
  read: FileText,
  write: FilePen,
  edit: FilePen,
  list: FolderTree,
  move: ArrowLeftRight,
  delete: Trash2,
  look: Monitor,
  mouse: MousePointer2,
  keyboard: Keyboard,
  window: AppWindow,
  browser: Globe,
  phone: Smartphone,
  transfer: ArrowLeftRight,
  keep: FileOutput,
  network: Globe,
  question: CircleHelp,
  plan: ListChecks,
  other: Wrench,
};

export function toolCategory(tool: string): ToolCategory {
  return CATEGORY_PATTERNS.find(([pattern]) => pattern.test(tool))?.[1] ?? "other";
}

export function toolIcon(tool: string): LucideIcon {
  return ICONS[toolCategory(tool)];
}

/** Tools that every kind of sandbox has. */
const COMMON_TOOLS =
  /^(read_file|write_file|list_directory|create_directory|move_file|delete_file|run_shell_command|run_ipython_cell)$/;

export interface ToolIdentity {
  tool: string;
  kind: string | null;
  /** MCP server of the tool; the prefix of its name. */
  server?: string;
}

/** Tool and kind of a call, also where only the full name is known: while it is streamed, and in forked chats. */
export function identifyTool(
  call: Pick<CallView, "tool" | "name" | "kind">,
  kinds: readonly string[] = [],
): ToolIdentity {
  if (call.tool && call.kind) return { tool: call.tool, kind: call.kind };
  // Only tools of MCP servers have two names without a kind. Prefixes have no underscore.
  if (call.tool && call.tool !== call.name) return { tool: call.tool, kind: null, server: call.name.split("_", 1)[0] };
  const kind = call.kind ?? kinds.find((each) => call.name.startsWith(`${each}_`)) ?? null;
  if (!kind || !call.name.startsWith(`${kind}_`)) return { tool: call.name, kind };
  const rest = call.name.slice(kind.length + 1);
  // Some tool names include their kind: `browser_click`.
  const keepsPrefix = /^(browser|mobile)$/.test(kind) && !COMMON_TOOLS.test(rest);
  return { tool: keepsPrefix ? call.name : rest, kind };
}

/** Arguments that best summarize a call, most useful first. */
const SUMMARY_ARGUMENTS = [
  "command",
  "code",
  "path",
  "from_path",
  "source",
  "url",
  "question",
  "text",
  "keys",
  "name",
  "title",
  "query",
  "selector",
  "file",
  "expression",
  "instruction",
];

const MAX_SUMMARY = 160;

/** One-line summary of a call's arguments. */
export function summarizeArguments(tool: string, args: Record<string, unknown> | null): string {
  if (!args) return "";
  if (toolCategory(tool) === "mouse" && typeof args.x === "number" && typeof args.y === "number")
    return `${args.x}, ${args.y}`;
  if (toolCategory(tool) === "plan" && Array.isArray(args.steps)) return "";
  const name = SUMMARY_ARGUMENTS.find((each) => typeof args[each] === "string" || Array.isArray(args[each]));
  if (name) {
    const value = args[name];
    const first = Array.isArray(value) ? value.join(" ") : String(value);
    const to = args.destination ?? args.to_path;
    return singleLine(typeof to === "string" ? `${first} → ${to}` : first);
  }
  const rest = Object.entries(args).filter(([, value]) => value !== null && typeof value !== "object");
  return singleLine(rest.map(([key, value]) => `${key}: ${String(value)}`).join(", "));
}

function singleLine(text: string): string {
  const flat = text
    .slice(0, MAX_SUMMARY * 2)
    .replace(/\s+/g, " ")
    .trim();
  return flat.length > MAX_SUMMARY ? `${flat.slice(0, MAX_SUMMARY - 1)}…` : flat;
}

/** View of the sandbox panel that shows a tool's effect. */
export function toolPanelView(tool: string): "desktop" | "terminal" | "files" | "output" {
  const sort = toolCategory(tool);
  if (sort === "command" || sort === "python") return "terminal";
  if (["read", "write", "edit", "list", "move", "delete", "keep"].includes(sort)) return "files";
  if (["look", "mouse", "keyboard", "window", "browser", "phone"].includes(sort)) return "desktop";
  return "output";
}
