/** Tool runs in one sandbox. */

import type { CallView } from "@/session/types";
import type { SandboxEvent } from "./useSandboxEvents";

export interface ToolRun {
  id: string;
  /** Tool name without its kind. */
  tool: string;
  at: string;
  seconds: number | null;
  state: "running" | "done" | "failed" | "refused";
  /** One-line summary of the arguments. */
  summary: string;
  /** Call of the session, for details. */
  call: CallView | null;
  /** Number of omitted calls before it. */
  omittedCalls: number;
}

/** Calls of a session that ran in a sandbox, oldest first. */
export function toolRunsFromCalls(calls: Record<string, CallView>, sandbox: string): ToolRun[] {
  return Object.values(calls)
    .filter((call) => call.sandbox === sandbox && (call.runningAt !== null || call.result !== null))
    .map(
      (call): ToolRun => ({
        id: call.id,
        tool: call.tool,
        at: call.runningAt ?? call.at,
        seconds: call.result?.seconds ?? null,
        state: !call.result ? "running" : call.result.refused ? "refused" : call.result.failed ? "failed" : "done",
        summary: summarizeArguments(call.arguments),
        call,
        omittedCalls: 0,
      }),
    )
    .sort((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0));
}

/** The same for a sandbox without a session, from its own events, which have no arguments. */
export function toolRunsFromEvents(events: SandboxEvent[]): ToolRun[] {
  return events
    .filter((event) => event.type === "tool.called")
    .map(
      ({ number, at, data }): ToolRun => ({
        id: String(number),
        tool: String(data.name ?? ""),
        at,
        seconds: typeof data.seconds === "number" ? data.seconds : null,
        state: data.failed ? "failed" : "done",
        summary: "",
        call: null,
        omittedCalls: typeof data.left_out === "number" ? data.left_out : 0,
      }),
    );
}

const SUMMARY_ARGUMENTS = ["command", "code", "path", "url", "text", "query", "source", "name"];

/** The most useful argument, cut to one line. */
export function summarizeArguments(args: Record<string, unknown> | null): string {
  if (!args) return "";
  const name = SUMMARY_ARGUMENTS.find((each) => typeof args[each] === "string") ?? Object.keys(args)[0];
  if (name === undefined) return "";
  const value = args[name];
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const line = (text ?? "").split("\n").find((each) => each.trim()) ?? "";
  return line.length > 160 ? `${line.slice(0, 159)}…` : line;
}
