/** Commands that an agent ran in one sandbox, for its terminal view. */

import type { CallView } from "@/session/types";

export interface AgentCommand {
  id: string;
  /** Prompt before the first line: a shell's, or Python's. */
  prompt: "$" | ">>>";
  text: string;
  /** Working directory, if the agent named one. */
  directory: string;
  state: "running" | "done" | "failed";
  /** Live output: its last part, and the total number of characters. */
  output: string;
  heard: number;
  /** Output from the result, without the exit code line; null while running. */
  result: string | null;
  exit: number | null;
  seconds: number | null;
}

/** Whose commands a sandbox's terminal shows: those of a chat, or commands that are already known. */
export type AgentSource = { session: string } | { commands: AgentCommand[] };

/** A tool call of a chat or a run. */
export interface CommandCall {
  id: string;
  tool: string;
  arguments: Record<string, unknown>;
  output: string;
  heard: number;
  /** Null while running. */
  result: { text: string; failed: boolean; seconds: number | null } | null;
}

const PYTHON = /python|ipython/;
const SHELL = /(^|_)(run|exec|execute)(_|$)|shell|bash|terminal|^command$/;
/** Tools that match these names but run no command. */
const NO_COMMAND = /^(start|stop|list|close)_/;
const EXIT_LINE = /(?:^|\n)\[exit code (\d{1,3})\]\s*$/;
/** Limit of the terminal view; the Output tab has everything. */
export const MAX_COMMANDS = 100;
export const MAX_TEXT = 16 * 1024;

/** Commands by start time, newest last; rejected calls never started. */
export function agentCommands(calls: Record<string, CallView>, sandbox: { id: string; kind: string }): AgentCommand[] {
  return Object.values(calls)
    .filter((call) => hasRun(call) && runsInSandbox(call, sandbox))
    .sort((one, other) => compareText(startTime(one), startTime(other)))
    .slice(-MAX_COMMANDS)
    .flatMap((call) => commandFromCall(sessionCall(call)) ?? []);
}

function hasRun(call: CallView): boolean {
  return call.progress === "running" || (call.progress === "done" && call.result !== null && !call.result.refused);
}

/** Agent programs do not report where their own commands run: it is the sandbox of the call's kind. */
function runsInSandbox(call: CallView, sandbox: { id: string; kind: string }): boolean {
  return call.sandbox === null ? call.kind !== null && call.kind === sandbox.kind : call.sandbox === sandbox.id;
}

function startTime(call: CallView): string {
  return call.runningAt ?? call.at;
}

function compareText(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

function sessionCall(call: CallView): CommandCall {
  const { result } = call;
  return {
    id: call.id,
    tool: call.tool || call.name,
    arguments: call.arguments ?? {},
    output: call.output,
    heard: call.heard,
    result: result && {
      text: result.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n"),
      failed: result.failed,
      seconds: result.seconds || null,
    },
  };
}

/** The command of a tool call; null if the tool runs none. */
export function commandFromCall(call: CommandCall): AgentCommand | null {
  const tool = call.tool.toLowerCase();
  if (NO_COMMAND.test(tool) || !(PYTHON.test(tool) || SHELL.test(tool))) return null;
  const given = call.arguments;
  const python = PYTHON.test(tool);
  const text = firstText(python ? [given.code, given.command] : [given.command, given.cmd, given.code, given.title]);
  if (text === null) return null;
  const said = call.result?.text ?? null;
  const exit = said === null ? null : EXIT_LINE.exec(said);
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
    seconds: call.result?.seconds ?? null,
  };
}

/** First text among the arguments; agent programs may pass a command as a list. */
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
