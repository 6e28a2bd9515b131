/** Metrics of runs, formatted for display. */

import type { Tone } from "@/ui/controls/Badge";
import { isRunOver, type Run, type RunDetail, type RunState } from "./api";

const TONES: Record<RunState, Tone> = {
  queued: "neutral",
  running: "info",
  succeeded: "good",
  failed: "danger",
  timed_out: "warning",
  over_budget: "warning",
  lost: "danger",
  cancelled: "neutral",
};

export function runStateTone(state: RunState): Tone {
  return TONES[state] ?? "neutral";
}

/** Duration so far or in total; null before the start. */
export function runDurationSeconds(run: Run, now: number): number | null {
  if (!run.startedAt) return null;
  const end = isRunOver(run.state) && run.endedAt ? Date.parse(run.endedAt) : now;
  return Math.max(0, (end - Date.parse(run.startedAt)) / 1000);
}

export function runTokenCount(run: Run): number | null {
  const traffic = run.result?.traffic;
  return traffic ? traffic.inputTokens + traffic.outputTokens : null;
}

const SUCCESS_REASONS = new Set(["exit", "file", "output", "says", "verified"]);

/** Stage at which a run failed; null if it did not fail. */
export function failedRunStage({ state, result }: RunDetail): string | null {
  if (!isRunOver(state) || state === "succeeded" || state === "cancelled" || !result) return null;
  const { endedBy, evidence, exitCode, missing, checks } = result;
  if (typeof evidence.stage === "string") return evidence.stage;
  // Output is checked only if the agent itself ended successfully.
  if (state === "failed" && SUCCESS_REASONS.has(endedBy) && !exitCode) {
    if (missing.some((each) => each.required)) return "collect";
    if (checks.some((check) => check.required && !check.passed)) return "verify";
  }
  if (endedBy !== "setup") return "watch";
  return "start" in result.stages ? "start" : "sandbox";
}

/** Outcome of a stage of a finished run; stages missing from the result never started. */
export function runStageOutcome(run: RunDetail, stage: string): "failed" | "done" | "skipped" {
  if (stage === failedRunStage(run)) return "failed";
  return run.result && stage in run.result.stages ? "done" : "skipped";
}

/** Path for display, relative to the workspace if inside it. */
export function workspaceRelativePath(path: string): string {
  return path.replace(/^\/workspace\/(?=.)/, "");
}

/** File that a relative link in another file points to; null for external addresses. */
export function resolveSiblingPath(path: string, source: string): string | null {
  try {
    const found = new URL(source, `run://files/${path.split("/").map(encodeURIComponent).join("/")}`);
    if (found.protocol !== "run:" || found.host !== "files") return null;
    return found.pathname.slice(1).split("/").map(decodeURIComponent).join("/");
  } catch {
    return null;
  }
}

export function formatPercent(score: number, language: string): string {
  return new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: 1 }).format(score);
}

/** Matrix values of a run's name `TASK/AGENT/MODEL`, without the task. */
export function matrixCellName(run: Run): string {
  return run.name.split("/").slice(1).join(" / ") || run.name;
}

export interface BestRunMetrics {
  score: number | null;
  seconds: number | null;
  tokens: number | null;
  cost: number | null;
}

/** Best metrics among successful runs; null if fewer than two can be compared. */
export function bestRunMetrics(runs: Run[]): BestRunMetrics {
  const good = runs.filter((run) => run.state === "succeeded");
  const best = (values: (number | null | undefined)[], pick: (...all: number[]) => number) => {
    const known = values.filter((value) => value !== null && value !== undefined);
    return known.length > 1 && new Set(known).size > 1 ? pick(...known) : null;
  };
  return {
    score: best(
      runs.map((run) => run.result?.score),
      Math.max,
    ),
    seconds: best(
      good.map((run) => run.result?.seconds),
      Math.min,
    ),
    tokens: best(good.map(runTokenCount), Math.min),
    cost: best(
      good.map((run) => run.result?.traffic.cost),
      Math.min,
    ),
  };
}
