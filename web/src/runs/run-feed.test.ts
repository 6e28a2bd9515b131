import { describe, expect, it } from "vitest";
import { applyRunEvents, EMPTY_FEED, type RunEvent } from "./run-feed";

function events(...entries: [string, Record<string, unknown>][]): RunEvent[] {
  return entries.map(([type, data], index) => ({
    number: index + 1,
    type,
    at: `2026-01-01T00:00:${String(index).padStart(2, "0")}Z`,
    data,
  }));
}

describe("a run's feed", () => {
  const all = events(
    ["run.queued", { name: "hello" }],
    ["run.started", { attempt: 1, model: "fast", scripted: true }],
    ["run.stage", { stage: "sandbox" }],
    ["run.sandbox", { sandbox_id: "sb-1", image: "host" }],
    ["run.stage", { stage: "watch" }],
    ["run.thinking", { text: "hm" }],
    ["run.text", { text: "I look." }],
    ["run.tool_call", { id: "a", name: "Bash", arguments: { command: "ls" } }],
    ["run.tool_result", { id: "a", text: "x.csv", failed: false }],
    ["run.output", { stream: "stdout", text: "one\n" }],
    ["run.output", { stream: "stdout", text: "two\n" }],
    ["run.output", { stream: "stderr", text: "oh\n" }],
    ["run.usage", { turns: 1, requests: 2, input_tokens: 30, output_tokens: 4, cost: 0 }],
    ["run.ended", { state: "succeeded" }],
  );

  it("attaches results to calls and joins output", () => {
    const feed = applyRunEvents(EMPTY_FEED, all);
    expect(feed.items.map((item) => item.type)).toEqual(["thinking", "text", "call", "output", "output"]);
    expect(feed.items[2]).toMatchObject({ call: { name: "Bash", result: "x.csv", scripted: true } });
    expect(feed.items[3]).toMatchObject({ stream: "stdout", text: "one\ntwo\n" });
    expect(feed.figures).toEqual({ turns: 1, requests: 2, inputTokens: 30, outputTokens: 4, cost: 0 });
    expect(feed).toMatchObject({ sandbox: "sb-1", image: "host", model: "fast", ended: true, last: 14 });
  });

  it("records when each stage ended", () => {
    expect(applyRunEvents(EMPTY_FEED, all).stages).toEqual([
      { stage: "sandbox", at: "2026-01-01T00:00:02Z", endedAt: "2026-01-01T00:00:04Z" },
      { stage: "watch", at: "2026-01-01T00:00:04Z", endedAt: "2026-01-01T00:00:13Z" },
    ]);
  });

  it("shows build progress as one stage", () => {
    const buildEvents = events(
      ["run.queued", { name: "hello" }],
      ["run.stage", { stage: "admit", image: "agent-codex", step: "unpack", fraction: 0.2 }],
      [
        "run.stage",
        { stage: "admit", image: "agent-codex", step: "install", fraction: null, step_number: 2, step_count: 6 },
      ],
      ["run.started", { attempt: 1 }],
    );
    const building = applyRunEvents(EMPTY_FEED, buildEvents.slice(0, 3));
    expect(building.build).toEqual({
      image: "agent-codex",
      step: "install",
      fraction: null,
      steps: { number: 2, total: 6 },
    });
    expect(building.stages.map((each) => each.stage)).toEqual(["admit"]);
    expect(applyRunEvents(building, buildEvents).build).toBeNull();
  });

  it("is the same for any batching and duplicates", () => {
    const fullFeed = applyRunEvents(EMPTY_FEED, all);
    for (let cut = 0; cut <= all.length; cut += 1) {
      expect(applyRunEvents(applyRunEvents(EMPTY_FEED, all.slice(0, cut)), all.slice(Math.max(0, cut - 2)))).toEqual(
        fullFeed,
      );
    }
  });

  it("resets stages for another attempt", () => {
    const feed = applyRunEvents(
      EMPTY_FEED,
      events(
        ["run.started", { attempt: 1 }],
        ["run.stage", { stage: "sandbox" }],
        ["run.retrying", { state: "lost", reason: "it was gone", code: "SILENT", params: { seconds: "5" }, wait: 5 }],
        ["run.started", { attempt: 2 }],
        ["run.stage", { stage: "admit" }],
      ),
    );
    expect(feed.attempt).toBe(2);
    expect(feed.stages.map((each) => each.stage)).toEqual(["admit"]);
    expect(feed.items).toMatchObject([
      {
        type: "attempt",
        attempt: 2,
        cause: { reason: "it was gone", code: "SILENT", params: { seconds: "5" } },
        wait: 5,
      },
    ]);
  });

  it("shows a result without a call", () => {
    expect(
      applyRunEvents(EMPTY_FEED, events(["run.tool_result", { id: "z", text: "?", failed: true }])).items,
    ).toMatchObject([{ type: "call", call: { id: "z", result: "?", failed: true } }]);
  });
});
