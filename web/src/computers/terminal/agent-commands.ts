/** The commands that an agent has run in one sandbox, as its terminal shows them. */

import type { CallView } from "@/session/types";

export interface AgentCommand {
  id: string;
  /** What stands before the first line: a shell's prompt, or Python's. */
  prompt: "$" | ">>>";
  text: string;
  /** Where it runs, if the agent has named a directory. */
  directory: string;
  state: "running" | "done" | "failed";
  /** Live output: the last part of it, and how many characters there have been in all. */
  output: string;
  heard: number;
  /** Output as the result has it, without the line that names the exit code; null while it runs. */
  result: string | null;
  exit: number | null;
  seconds: number | null;
}

const PYTHON = /python|ipython/;
const SHELL = /(^|_)(run|exec|execute)(_|$)|shell|bash|terminal|^command$/;
/** Tools with such names that run no command of their own. */
const OTHERS = /^(start|stop|list|close)_/;
const EXIT = /(?:^|\n)\[exit code (\d{1,3})\]\s*$/;
/** More than this the terminal does not show; the Output tab has the rest. */
export const MOST_COMMANDS = 100;
export const MOST_TEXT = 16 * 1024;

/** Commands in the order in which they began, the newest last; a call that was refused never began. */
export function commandsOf(calls: Record<string, CallView>, box: { id: string; kind: string }): AgentCommand[] {
  return Object.values(calls)
    .filter((call) => ran(call) && isHere(call, box))
    .sort((one, other) => compare(begin(one), begin(other)))
    .slice(-MOST_COMMANDS)
    .flatMap((call) => commandOf(call) ?? []);
}

function ran(call: CallView): boolean {
  return call.progress === "running" || (call.progress === "done" && call.result !== null && !call.result.refused);
}

/** Agent programs do not say where their own commands run: it is the sandbox of the call's kind. */
function isHere(call: CallView, box: { id: string; kind: string }): boolean {
  return call.sandbox === null ? call.kind !== null && call.kind === box.kind : call.sandbox === box.id;
}

function begin(call: CallView): string {
  return call.runningAt ?? call.at;
}

function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

function commandOf(call: CallView): AgentCommand | null {
  const tool = call.tool || call.name;
  if (OTHERS.test(tool) || !(PYTHON.test(tool) || SHELL.test(tool))) return null;
  const given = call.arguments ?? {};
  const python = PYTHON.test(tool);
  const text = firstText(python ? [given.code, given.command] : [given.command, given.cmd, given.code, given.title]);
  if (text === null) return null;
  const said = call.result?.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n") ?? null;
  const exit = said === null ? null : EXIT.exec(said);
  const code = exit ? Number(exit[1]) : null;
  return {
    id: call.id,
    prompt: python ? ">>>" : "$",
    text,
    directory: typeof given.cwd === "string" ? given.cwd : "",
    state: !call.result ? "running" : call.result.failed || (code ?? 0) > 0 ? "failed" : "done",
    output: call.output,
    heard: call.heard,
    result: said === null ? null : exit ? said.slice(0, exit.index) : said === "[no output]" ? "" : said,
    exit: code ?? (!python && call.result && !call.result.failed ? 0 : null),
    seconds: call.result?.seconds || null,
  };
}

/** The first text among arguments; agent programs also give a command as a list of words. */
function firstText(values: readonly unknown[]): string | null {
  for (const value of values) {
    if (typeof value === "string" && value.trim()) return value;
    if (Array.isArray(value) && value.length && value.every((each) => typeof each === "string"))
      return value
        .map((each) => (/^[\w./:=@%+,-]+$/.test(each) ? each : `'${each.replaceAll("'", "'\\''")}'`))
        .join(" ");
  }
  return null;
}
