import { describe, expect, it } from "vitest";
import { agentCommandsOfRun } from "./agent-commands-of-run";
import type { RunDetail } from "./api";
import { applyRunEvents, EMPTY_FEED } from "./run-feed";

const events = (...all: [string, Record<string, unknown>][]) =>
  all.map(([type, data], number) => ({
    number: number + 1,
    type,
    at: `2026-01-01T00:00:0${number}Z`,
    data,
  }));
const feedOf = (...all: [string, Record<string, unknown>][]) => applyRunEvents(EMPTY_FEED, events(...all));
const task = (fields: object) => ({ name: "a", ...fields }) as unknown as RunDetail["task"];
const CALL = { id: "1", name: "Bash", arguments: { command: "make all" } };

describe("the commands of a run", () => {
  it("are the agent's tool calls with their results", () => {
    const agent = task({ agent: "claude-code" });
    const before = feedOf(["run.tool_call", CALL], ["run.tool_call", { id: "2", name: "Read", arguments: {} }]);
    expect(agentCommandsOfRun(before, agent)).toMatchObject([{ text: "make all", state: "running", result: null }]);
    const after = feedOf(["run.tool_call", CALL], ["run.tool_result", { id: "1", text: "no rule", failed: true }]);
    expect(agentCommandsOfRun(after, agent)).toMatchObject([
      { state: "failed", result: "no rule", exit: null, seconds: 1 },
    ]);
  });

  it("include only the current attempt", () => {
    const feed = feedOf(
      ["run.tool_call", CALL],
      ["run.retrying", { reason: "x" }],
      ["run.tool_call", { ...CALL, id: "3" }],
    );
    expect(agentCommandsOfRun(feed, task({ agent: "codex" })).map(({ id }) => id)).toEqual(["3"]);
  });

  it("are the entrypoint and its output without an agent", () => {
    const entrypointTask = task({ entrypoint: "sh count.sh" });
    const startedEvents: [string, Record<string, unknown>][] = [
      ["run.stage", { stage: "watch" }],
      ["run.output", { stream: "stdout", text: "1\n" }],
    ];
    expect(agentCommandsOfRun(feedOf(...startedEvents), entrypointTask)).toMatchObject([
      { text: "sh count.sh", state: "running", output: "1\n", outputLength: 2, result: null },
    ]);
    expect(agentCommandsOfRun(feedOf(...startedEvents, ["run.ended", {}]), entrypointTask)).toMatchObject([
      { state: "done", result: "1\n" },
    ]);
    expect(agentCommandsOfRun(EMPTY_FEED, entrypointTask)).toEqual([]);
  });
});
