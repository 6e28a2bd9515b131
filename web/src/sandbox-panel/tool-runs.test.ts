import { describe, expect, it } from "vitest";
import type { CallView } from "@/session/types";
import { summarizeArguments, toolRunsFromCalls, toolRunsFromEvents } from "./tool-runs";

const call = (id: string, more: Partial<CallView>): CallView => ({
  id,
  answer: "a",
  turn: 1,
  name: `linux_${id}`,
  kind: "linux",
  tool: id,
  argumentsJson: "",
  arguments: null,
  malformed: null,
  progress: "done",
  sandbox: "sb-1",
  approval: null,
  output: "",
  outputLength: 0,
  result: null,
  at: "2026-01-01T00:00:00Z",
  runningAt: null,
  endedAt: null,
  ...more,
});
const result = { content: [], failed: false, refused: false, seconds: 1.5 };

describe("toolRunsFromCalls", () => {
  it("lists calls in the sandbox by time", () => {
    const calls = {
      late: call("late", { runningAt: "2026-01-01T00:00:05Z" }),
      early: call("early", { runningAt: "2026-01-01T00:00:01Z", result: { ...result, failed: true } }),
      waiting: call("waiting", {}),
      elsewhere: call("elsewhere", { sandbox: "sb-2", runningAt: "2026-01-01T00:00:02Z" }),
      refused: call("refused", { result: { ...result, refused: true } }),
    };
    expect(toolRunsFromCalls(calls, "sb-1").map((run) => [run.tool, run.state])).toEqual([
      ["refused", "refused"],
      ["early", "failed"],
      ["late", "running"],
    ]);
  });
});

describe("toolRunsFromEvents", () => {
  it("lists tool events of the sandbox", () => {
    const event = (type: string, data: Record<string, unknown>) =>
      ({ sequence: 1, stream: "sandbox/sb-1", number: 7, type, at: "2026-01-01T00:00:00Z", data }) as never;
    const runs = toolRunsFromEvents([
      event("sandbox.running", {}),
      event("tool.called", { name: "press_keys", seconds: 0.2, failed: true, left_out: 3 }),
    ]);
    expect(runs).toMatchObject([{ id: "7", tool: "press_keys", state: "failed", seconds: 0.2, omittedCalls: 3 }]);
  });
});

describe("summarizeArguments", () => {
  it("uses the most useful argument", () => {
    expect(summarizeArguments({ timeout: 3, command: "\nls -l\nrm x" })).toBe("ls -l");
    expect(summarizeArguments({ x: 10, y: 20 })).toBe("10");
    expect(summarizeArguments({})).toBe("");
    expect(summarizeArguments({ text: "x".repeat(500) })).toHaveLength(160);
  });
});
