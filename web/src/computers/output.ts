/** What tools did in one box, as a list. */

import type { CallView } from "@/session/types";
import type { EventSaid } from "./useBoxEvents";

export interface Deed {
  id: string;
  /** The tool's name, without its kind. */
  tool: string;
  at: string;
  seconds: number | null;
  state: "running" | "done" | "failed" | "refused";
  /** What it was asked to do, in one line. */
  summary: string;
  /** Of the session, for its details. */
  call: CallView | null;
  /** Calls before it that were not told, where there were very many. */
  leftOut: number;
}

/** The calls of a session that ran in a box, the oldest first. */
export function deedsOfCalls(calls: Record<string, CallView>, sandbox: string): Deed[] {
  return Object.values(calls)
    .filter((call) => call.sandbox === sandbox && (call.runningAt !== null || call.result !== null))
    .map(
      (call): Deed => ({
        id: call.id,
        tool: call.tool,
        at: call.runningAt ?? call.at,
        seconds: call.result?.seconds ?? null,
        state: !call.result ? "running" : call.result.refused ? "refused" : call.result.failed ? "failed" : "done",
        summary: summaryOf(call.arguments),
        call,
        leftOut: 0,
      }),
    )
    .sort((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0));
}

/** The same of a box that belongs to no session, by its own events, which know no arguments. */
export function deedsOfEvents(events: EventSaid[]): Deed[] {
  return events
    .filter((event) => event.type === "tool.called")
    .map(
      ({ number, at, data }): Deed => ({
        id: String(number),
        tool: String(data.name ?? ""),
        at,
        seconds: typeof data.seconds === "number" ? data.seconds : null,
        state: data.failed ? "failed" : "done",
        summary: "",
        call: null,
        leftOut: typeof data.left_out === "number" ? data.left_out : 0,
      }),
    );
}

const FIRST_OF = ["command", "code", "path", "url", "text", "query", "source", "name"];

/** The argument that says most, cut to one line. */
export function summaryOf(given: Record<string, unknown> | null): string {
  if (!given) return "";
  const name = FIRST_OF.find((each) => typeof given[each] === "string") ?? Object.keys(given)[0];
  if (name === undefined) return "";
  const value = given[name];
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const line = (text ?? "").split("\n").find((each) => each.trim()) ?? "";
  return line.length > 160 ? `${line.slice(0, 159)}…` : line;
}
