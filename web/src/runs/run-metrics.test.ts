import { describe, expect, it } from "vitest";
import type { Run, RunDetail } from "./api";
import {
  bestRunMetrics,
  failedRunStage,
  matrixCellName,
  resolveSiblingPath,
  runDurationSeconds,
  runStageOutcome,
  workspaceRelativePath,
} from "./run-metrics";

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
    } as unknown as RunDetail;
    const states = ["admit", "sandbox", "collect", "release"].map((stage) => runStageOutcome(unstarted, stage));
    expect(states).toEqual(["failed", "skipped", "skipped", "skipped"]);
    const cancelled = { state: "cancelled", result: { endedBy: "cancel", stages: {} } } as unknown as RunDetail;
    expect(runStageOutcome(cancelled, "admit")).toBe("skipped");
  });

  it("count time up to now only while running", () => {
    const startedAt = "2026-01-01T00:00:00Z";
    const now = Date.parse("2026-01-01T00:01:00Z");
    expect(runDurationSeconds(run({ state: "running", startedAt }), now)).toBe(60);
    expect(runDurationSeconds(run({ startedAt, endedAt: "2026-01-01T00:00:07Z" }), now)).toBe(7);
    expect(runDurationSeconds(run({ state: "queued" }), now)).toBeNull();
  });

  it("show the failed stage", () => {
    const failed = (more: object, state = "failed") =>
      failedRunStage({
        state,
        result: { endedBy: "exit", evidence: {}, exitCode: 0, stages: {}, missing: [], checks: [], ...more },
      } as unknown as RunDetail);
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

  it("resolve sibling files only", () => {
    expect(resolveSiblingPath("out/report.md", "chart.png")).toBe("out/chart.png");
    expect(resolveSiblingPath("out/report.md", "../a%20b.png")).toBe("a b.png");
    expect(resolveSiblingPath("report.md", "https://example.org/x.png")).toBeNull();
    expect(resolveSiblingPath("report.md", "//example.org/x.png")).toBeNull();
    expect(workspaceRelativePath("/workspace/a/b")).toBe("a/b");
    expect(workspaceRelativePath("/etc/hosts")).toBe("/etc/hosts");
  });

  it("show the matrix values", () => {
    expect(matrixCellName(run({ name: "hello/codex/fast" }))).toBe("codex / fast");
    expect(matrixCellName(run({}))).toBe("hello");
  });

  it("mark best values of successful runs that differ", () => {
    const best = bestRunMetrics([ended(1, 9, 0.2), ended(0.5, 4, 0.1), ended(0, 1, 0.001, "failed")]);
    expect(best).toEqual({ score: 1, seconds: 4, tokens: null, cost: 0.1 });
    expect(bestRunMetrics([ended(1, 9, null)])).toEqual({ score: null, seconds: null, tokens: null, cost: null });
  });
});
