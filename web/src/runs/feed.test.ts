import { describe, expect, it } from "vitest";
import { NOTHING, type RunEvent, tell } from "./feed";

function events(...said: [string, Record<string, unknown>][]): RunEvent[] {
  return said.map(([type, data], index) => ({
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

  it("puts results to their calls and output together", () => {
    const feed = tell(NOTHING, all);
    expect(feed.items.map((item) => item.type)).toEqual(["thinking", "text", "call", "output", "output"]);
    expect(feed.items[2]).toMatchObject({ call: { name: "Bash", result: "x.csv", scripted: true } });
    expect(feed.items[3]).toMatchObject({ stream: "stdout", text: "one\ntwo\n" });
    expect(feed.figures).toEqual({ turns: 1, requests: 2, inputTokens: 30, outputTokens: 4, cost: 0 });
    expect(feed).toMatchObject({ sandbox: "sb-1", image: "host", model: "fast", ended: true, last: 14 });
  });

  it("knows when each stage ended", () => {
    expect(tell(NOTHING, all).stages).toEqual([
      { stage: "sandbox", at: "2026-01-01T00:00:02Z", endedAt: "2026-01-01T00:00:04Z" },
      { stage: "watch", at: "2026-01-01T00:00:04Z", endedAt: "2026-01-01T00:00:13Z" },
    ]);
  });

  it("shows how far a build is, as one stage", () => {
    const said = events(
      ["run.queued", { name: "hello" }],
      ["run.stage", { stage: "admit", image: "agent-codex", step: "unpack", fraction: 0.2 }],
      ["run.stage", { stage: "admit", image: "agent-codex", step: "install", fraction: null }],
      ["run.started", { attempt: 1 }],
    );
    const building = tell(NOTHING, said.slice(0, 3));
    expect(building.build).toEqual({ image: "agent-codex", step: "install", fraction: null });
    expect(building.stages.map((each) => each.stage)).toEqual(["admit"]);
    expect(tell(building, said).build).toBeNull();
  });

  it("is the same however its events are cut into pieces, and when some come twice", () => {
    const whole = tell(NOTHING, all);
    for (let cut = 0; cut <= all.length; cut += 1) {
      expect(tell(tell(NOTHING, all.slice(0, cut)), all.slice(Math.max(0, cut - 2)))).toEqual(whole);
    }
  });

  it("begins its stages again with another attempt", () => {
    const feed = tell(
      NOTHING,
      events(
        ["run.started", { attempt: 1 }],
        ["run.stage", { stage: "sandbox" }],
        ["run.retrying", { state: "lost", reason: "it was gone", wait: 5 }],
        ["run.started", { attempt: 2 }],
        ["run.stage", { stage: "admit" }],
      ),
    );
    expect(feed.attempt).toBe(2);
    expect(feed.stages.map((each) => each.stage)).toEqual(["admit"]);
    expect(feed.items).toMatchObject([{ type: "attempt", attempt: 2, reason: "it was gone", wait: 5 }]);
  });

  it("shows a result whose call was never told", () => {
    expect(tell(NOTHING, events(["run.tool_result", { id: "z", text: "?", failed: true }])).items).toMatchObject([
      { type: "call", call: { id: "z", result: "?", failed: true } },
    ]);
  });
});
