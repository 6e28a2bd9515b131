import { Check, X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { formatDuration } from "@/ui/format/formats";
import { isRunOver, type RunDetail } from "./api";
import styles from "./run.module.css";
import type { RunFeed } from "./run-feed";
import { runStageOutcome } from "./run-metrics";
import { useCurrentTime } from "./useCurrentTime";

const STAGE_ORDER = ["admit", "sandbox", "inputs", "start", "watch", "collect", "verify", "release"] as const;

/** Stages of a run with their durations; the current one keeps counting. */
export function RunStages({ run, feed }: { run: RunDetail; feed: RunFeed }) {
  const { t } = useTranslation();
  const over = isRunOver(run.state);
  const now = useCurrentTime(!over);
  const stagesByName = Object.fromEntries(feed.stages.map((each) => [each.stage, each]));
  // No event reports the queue except leaving it.
  const [first] = feed.stages;
  if (first && feed.attempt === 1) stagesByName.admit ??= { stage: "admit", at: run.createdAt, endedAt: first.at };
  const current = over ? null : (feed.stages.at(-1)?.stage ?? run.stage);
  const currentIndex = (STAGE_ORDER as readonly (string | null)[]).indexOf(current);
  const stageSeconds = (stage: string): number | null => {
    const recordedSeconds = run.result?.stages[stage];
    const buildSeconds = stage === "admit" ? (run.result?.stages.image ?? 0) : 0;
    if (recordedSeconds !== undefined) return recordedSeconds + buildSeconds;
    if (over) return null;
    const item = stagesByName[stage];
    return item ? ((item.endedAt ? Date.parse(item.endedAt) : now) - Date.parse(item.at)) / 1000 : null;
  };
  const stateOf = (stage: string, index: number) => {
    if (over) return runStageOutcome(run, stage);
    if (stage === current) return "current";
    return stageSeconds(stage) !== null || index < currentIndex ? "done" : "ahead";
  };
  return (
    <ol className={styles.stages} aria-label={t("runs.stages")}>
      {STAGE_ORDER.map((stage, index) => {
        const seconds = stageSeconds(stage);
        const state = stateOf(stage, index);
        return (
          <li key={stage} className={styles[state]} aria-current={state === "current" ? "step" : undefined}>
            <span className={styles.dot} aria-hidden>
              {state === "done" && <Check size={11} strokeWidth={3} />}
              {state === "failed" && <X size={11} strokeWidth={3} />}
            </span>
            <span className={styles.stageName}>
              {t(`runs.stage.${stage}`)}
              {state === "failed" && <span className="visually-hidden"> {t("runs.state.failed")}</span>}
            </span>
            <span className={styles.stageTime}>
              {seconds !== null && Number.isFinite(seconds) ? formatDuration(Math.max(0, seconds)) : ""}
              {state === "skipped" && t("runs.skipped")}
            </span>
          </li>
        );
      })}
    </ol>
  );
}
