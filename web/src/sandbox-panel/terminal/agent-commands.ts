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
  outputLength: number;
  /** Output from the result, without the exit code line; null while running. */
  result: string | null;
  exit: number | null;
  seconds: number | null;
}

/** Source of the commands in a sandbox's terminal: a chat, or a list of commands. */
export type AgentCommandSource = { session: string } | { commands: AgentCommand[] };

/** A tool call of a chat or a run. */
export interface CommandCall {
  id: string;
  tool: string;
  arguments: Record<string, unknown>;
  output: string;
  outputLength: number;
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
export const MAX_OUTPUT_CHARACTERS = 16 * 1024;

/** Commands by start time, newest last; rejected calls never started. */
export function agentCommandsInSandbox(
  calls: Record<string, CallView>,
  sandbox: { id: string; kind: string },
): AgentCommand[] {
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
    outputLength: call.outputLength,
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
  const args = call.arguments;
  const python = PYTHON.test(tool);
  const text = firstText(python ? [args.code, args.command] : [args.command, args.cmd, args.code, args.title]);
  if (text === null) return null;
  const resultText = call.result?.text ?? null;
  const exit = resultText === null ? null : EXIT_LINE.exec(resultText);
  const code = exit ? Number(exit[1]) : null;
  return {
    id: call.id,
    prompt: python ? ">>>" : "$",
    text,
    directory: typeof args.cwd === "string" ? args.cwd : "",
    state: !call.result ? "running" : call.result.failed || (code ?? 0) > 0 ? "failed" : "done",
    output: call.output,
    outputLength: call.outputLength,
    result:
      resultText === null
        ? null
        : exit
          ? resultText.slice(0, exit.index)
          : resultText === "[no output]"
            ? ""
            : resultText,
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
