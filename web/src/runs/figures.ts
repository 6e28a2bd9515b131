/** Figures of runs, as they are shown. */

import type { Tone } from "@/ui/Badge";
import { isOver, type Run, type State, type WholeRun } from "./asking";

const TONES: Record<State, Tone> = {
  queued: "neutral",
  running: "info",
  succeeded: "good",
  failed: "danger",
  timed_out: "warning",
  over_budget: "warning",
  lost: "danger",
  cancelled: "neutral",
};

export function toneOf(state: State): Tone {
  return TONES[state] ?? "neutral";
}

/** How long it took, or has taken so far; null before it begins. */
export function secondsOf(run: Run, now: number): number | null {
  if (!run.startedAt) return null;
  const end = isOver(run.state) && run.endedAt ? Date.parse(run.endedAt) : now;
  return Math.max(0, (end - Date.parse(run.startedAt)) / 1000);
}

export function tokensOf(run: Run): number | null {
  const traffic = run.result?.traffic;
  return traffic ? traffic.inputTokens + traffic.outputTokens : null;
}

const ENDS_WELL = new Set(["exit", "file", "output", "says", "verified"]);

/** The stage at which a run failed; null if it did not. */
export function failedAt({ state, result }: WholeRun): string | null {
  if (!isOver(state) || state === "succeeded" || state === "cancelled" || !result) return null;
  const { endedBy, evidence, exitCode, missing, checks } = result;
  if (typeof evidence.stage === "string") return evidence.stage;
  // What the agent left is looked at only where its own end was a good one.
  if (state === "failed" && ENDS_WELL.has(endedBy) && !exitCode) {
    if (missing.some((each) => each.required)) return "collect";
    if (checks.some((check) => check.required && !check.passed)) return "verify";
  }
  if (endedBy !== "setup") return "watch";
  return "start" in result.stages ? "start" : "sandbox";
}

/** What became of a stage of a run that has ended: what is not in its result was never begun. */
export function stageAtEnd(run: WholeRun, stage: string): "failed" | "done" | "skipped" {
  if (stage === failedAt(run)) return "failed";
  return run.result && stage in run.result.stages ? "done" : "skipped";
}

/** A path as people write it: those in the workspace relative to it. */
export function shortPath(path: string): string {
  return path.replace(/^\/workspace\/(?=.)/, "");
}

/** The file that another one names by a relative address; null for addresses that lead elsewhere. */
export function besideOf(path: string, source: string): string | null {
  try {
    const found = new URL(source, `run://files/${path.split("/").map(encodeURIComponent).join("/")}`);
    if (found.protocol !== "run:" || found.host !== "files") return null;
    return found.pathname.slice(1).split("/").map(decodeURIComponent).join("/");
  } catch {
    return null;
  }
}

export function percent(score: number, language: string): string {
  return new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: 1 }).format(score);
}

/** What a matrix varied in one of its runs, `TASK/AGENT/MODEL`: what comes after the task's name. */
export function placeOf(run: Run): string {
  return run.name.split("/").slice(1).join(" / ") || run.name;
}

export interface Best {
  score: number | null;
  seconds: number | null;
  tokens: number | null;
  cost: number | null;
}

/** The best figures among runs that succeeded; null where fewer than two can be compared. */
export function bestOf(runs: Run[]): Best {
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
    tokens: best(good.map(tokensOf), Math.min),
    cost: best(
      good.map((run) => run.result?.traffic.cost),
      Math.min,
    ),
  };
}
