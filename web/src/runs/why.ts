import { useTranslation } from "react-i18next";
import { translated } from "@/ui/describe";
import { isOver, type Result, type WholeRun } from "./asking";
import { shortPath } from "./figures";

/** Why runs are stopped, where the server or the command line says it for people. */
const REASONS: Record<string, string> = {
  "interrupted on the command line": "commandLine",
  "somebody asked for it": "asked",
};

/** A reason of the server's, in the language of the page where that has words for it, and as a part of a sentence. */
export function useReason(): (reason: string) => string {
  const { t } = useTranslation();
  return (reason) => {
    const known = REASONS[reason.replace(/^it was cancelled: /, "")];
    const said = known ? t(`runs.reason.${known}`, { defaultValue: reason }) : reason;
    return said.replace(/[.。\s]+$/, "");
  };
}

/** Why a run is as it is, in a sentence or two. `stage` is the one under way, as far as is known. */
export function useWhy(run: WholeRun, stage: string): string {
  const { t } = useTranslation();
  const inWords = useReason();
  const { result } = run;
  /** The reason in the page's language, if that has a sentence for its code. */
  const inLanguage = ({ code, endedBy, reason, params }: Result): string | null => {
    const because = translated(`runs.because.${code}`, reason, params);
    const detail = params.detail ? t("runs.why.detail", { detail: inWords(params.detail) }) : "";
    if (because) return [because, detail].filter(Boolean).join(" ");
    const error = endedBy === "setup" ? translated(`errors.code.${code}`, reason, params) : null;
    return error ? `${t("runs.endedBy.setup")}${error}` : null;
  };
  if (!isOver(run.state)) {
    if (run.cancelling) return t("runs.why.cancelling", { reason: inWords(run.cancelling) });
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
  const told = more.length === 0 ? inLanguage(result) : null;
  if (told) return told;
  // Where the server knows more than what kind of end it was, its own words say it.
  const plain = result.endedBy === "exit" || result.endedBy === "verified";
  if (more.length === 0 && !plain) more.push(t("runs.why.said", { reason: inWords(result.reason) }));
  return [sentence, ...more].join(" ");
}
