import { describe, expect, it } from "vitest";
import type { Run, WholeRun } from "./asking";
import { besideOf, bestOf, failedAt, placeOf, secondsOf, shortPath, stageAtEnd } from "./figures";

function run(more: Partial<Run>): Run {
  return {
    id: "run-1",
    name: "hello",
    state: "succeeded",
    stage: "release",
    attempt: 1,
    priority: 0,
    scripted: false,
    visibility: "private",
    createdAt: "2026-01-01T00:00:00Z",
    changedAt: "2026-01-01T00:00:00Z",
    ...more,
  };
}

function ended(score: number, seconds: number, cost: number | null, state: Run["state"] = "succeeded"): Run {
  const traffic = { requests: 1, inputTokens: 10, outputTokens: 5, cost, scripted: false, failed: 0 };
  return run({
    state,
    result: { state, endedBy: "exit", reason: "", code: "", params: {}, attempt: 1, turns: 1, traffic, seconds, score },
  });
}

describe("figures", () => {
  it("show stages that never ran as skipped", () => {
    const unstarted = {
      state: "failed",
      result: {
        endedBy: "setup",
        evidence: { stage: "admit" },
        exitCode: null,
        stages: { admit: 0.02 },
        missing: [],
        checks: [],
      },
    } as unknown as WholeRun;
    const states = ["admit", "sandbox", "collect", "release"].map((stage) => stageAtEnd(unstarted, stage));
    expect(states).toEqual(["failed", "skipped", "skipped", "skipped"]);
    const cancelled = { state: "cancelled", result: { endedBy: "cancel", stages: {} } } as unknown as WholeRun;
    expect(stageAtEnd(cancelled, "admit")).toBe("skipped");
  });

  it("count time up to now only while a run goes on", () => {
    const startedAt = "2026-01-01T00:00:00Z";
    const now = Date.parse("2026-01-01T00:01:00Z");
    expect(secondsOf(run({ state: "running", startedAt }), now)).toBe(60);
    expect(secondsOf(run({ startedAt, endedAt: "2026-01-01T00:00:07Z" }), now)).toBe(7);
    expect(secondsOf(run({ state: "queued" }), now)).toBeNull();
  });

  it("tell the stage at which a run failed", () => {
    const failed = (more: object, state = "failed") =>
      failedAt({
        state,
        result: { endedBy: "exit", evidence: {}, exitCode: 0, stages: {}, missing: [], checks: [], ...more },
      } as unknown as WholeRun);
    const checks = [{ required: true, passed: false }];
    expect(failed({ checks })).toBe("verify");
    expect(failed({ checks: [{ required: false, passed: false }] })).toBe("watch");
    expect(failed({ checks, missing: [{ required: true }] })).toBe("collect");
    expect(failed({ checks, exitCode: 1 })).toBe("watch");
    expect(failed({ checks, endedBy: "timeout" }, "timed_out")).toBe("watch");
    expect(failed({ endedBy: "setup", evidence: { stage: "inputs" } })).toBe("inputs");
    expect(failed({ endedBy: "setup", exitCode: 127, stages: { start: 1 } })).toBe("start");
    expect(failed({ endedBy: "cancel" }, "cancelled")).toBeNull();
    expect(failed({}, "succeeded")).toBeNull();
  });

  it("find files beside others, and none elsewhere", () => {
    expect(besideOf("out/report.md", "chart.png")).toBe("out/chart.png");
    expect(besideOf("out/report.md", "../a%20b.png")).toBe("a b.png");
    expect(besideOf("report.md", "https://example.org/x.png")).toBeNull();
    expect(besideOf("report.md", "//example.org/x.png")).toBeNull();
    expect(shortPath("/workspace/a/b")).toBe("a/b");
    expect(shortPath("/etc/hosts")).toBe("/etc/hosts");
  });

  it("name what a matrix varies", () => {
    expect(placeOf(run({ name: "hello/codex/fast" }))).toBe("codex / fast");
    expect(placeOf(run({}))).toBe("hello");
  });

  it("call best what succeeded, and only where there is a difference", () => {
    const best = bestOf([ended(1, 9, 0.2), ended(0.5, 4, 0.1), ended(0, 1, 0.001, "failed")]);
    expect(best).toEqual({ score: 1, seconds: 4, tokens: null, cost: 0.1 });
    expect(bestOf([ended(1, 9, null)])).toEqual({ score: null, seconds: null, tokens: null, cost: null });
  });
});
