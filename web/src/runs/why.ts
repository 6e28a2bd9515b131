import { useTranslation } from "react-i18next";
import { isOver, type WholeRun } from "./asking";
import { shortPath } from "./figures";

/** Why a run is as it is, in a sentence or two. `stage` is the one under way, as far as is known. */
export function useWhy(run: WholeRun, stage: string): string {
  const { t } = useTranslation();
  const { result } = run;
  if (!isOver(run.state)) {
    if (run.cancelling) return t("runs.why.cancelling", { reason: run.cancelling });
    if (run.state === "queued")
      return run.notBefore ? t("runs.why.waitsUntil", { attempt: run.attempt }) : t("runs.why.queued");
    return t(`runs.now.${stage}`);
  }
  if (!result) return t(`runs.why.${run.state}`);
  const sentence = t(`runs.endedBy.${result.endedBy}`, { code: result.exitCode ?? "?", defaultValue: result.reason });
  const missing = result.missing.filter((each) => each.required).map((each) => shortPath(each.path));
  const failed = result.checks.filter((check) => check.required && !check.passed).map((check) => check.name);
  const more = [
    missing.length > 0 && t("runs.why.missing", { count: missing.length, names: missing.join(", ") }),
    failed.length > 0 && t("runs.why.checks", { count: failed.length, names: failed.join(", ") }),
  ].filter(Boolean);
  // Where the server knows more than what kind of end it was, its own words say it.
  const plain = result.endedBy === "exit" || result.endedBy === "verified";
  if (more.length === 0 && !plain) more.push(t("runs.why.said", { reason: result.reason }));
  return [sentence, ...more].join(" ");
}
