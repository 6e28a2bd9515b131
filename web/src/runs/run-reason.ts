import { useTranslation } from "react-i18next";
import { PROVIDER_KEY_REFUSED } from "@/api/client";
import { translateKey } from "@/ui/format/error-text";
import { isRunOver, type RunDetail, type RunResult } from "./api";
import type { RunEndCause } from "./run-feed";
import { workspaceRelativePath } from "./run-metrics";

/** Translates the reasons why runs ended. */
const REASON_PATTERNS: Record<string, string> = {
  "interrupted on the command line": "commandLine",
  "somebody asked for it": "asked",
};

/** Whether the server's reason names an agent; programs without a model have the same code. */
function isAgentExit(reason: string): boolean {
  return reason.startsWith("the agent ");
}

function agentExitKey(exitCode: string | number | null | undefined): string {
  return Number(exitCode) === 0 ? "runs.endedBy.agentDone" : "runs.endedBy.agentExit";
}

/** Translate a reason of the server, as part of a sentence. */
export function useTranslatedReason(): (reason: string) => string {
  const { t } = useTranslation();
  return (reason) => {
    const key = REASON_PATTERNS[reason.replace(/^it was cancelled: /, "")];
    const text = key ? t(`runs.reason.${key}`, { defaultValue: reason }) : reason;
    return text.replace(/[.。\s]+$/, "");
  };
}

/** The reason why an attempt ended, if the language has a text for its code. */
function useTranslatedCause(): (cause: RunEndCause) => string | null {
  const { t } = useTranslation();
  const translateReason = useTranslatedReason();
  return ({ code, reason, params }) => {
    const translated = translateKey(`runs.because.${code}`, reason, params);
    const isAgent = code === "EXITED" && isAgentExit(reason);
    const causeText =
      translated && isAgent ? t(agentExitKey(params.exit_code), { code: params.exit_code }) : translated;
    const detail = params.detail ? t("runs.why.detail", { detail: translateReason(params.detail) }) : "";
    return causeText && [causeText, detail].filter(Boolean).join(" ");
  };
}

/** Explain why another attempt begins, as part of a sentence. */
export function useRetryReason(): (cause: RunEndCause) => string {
  const translateReason = useTranslatedReason();
  const translateCause = useTranslatedCause();
  return (cause) => translateReason(translateCause(cause) ?? cause.reason);
}

/** Explain the run's state in a sentence or two. `stage` is the current one, if known. */
export function useRunExplanation(run: RunDetail, stage: string): string {
  const { t } = useTranslation();
  const translateReason = useTranslatedReason();
  const translateCause = useTranslatedCause();
  const { result } = run;
  /** The translated reason, if the language has a text for its code. */
  const translateResult = (ended: RunResult): string | null => {
    const causeText = translateCause(ended);
    if (causeText) return causeText;
    const { code, endedBy, reason, params } = ended;
    const error = endedBy === "setup" ? translateKey(`errors.code.${code}`, reason, params) : null;
    return error ? `${t("runs.endedBy.setup")}${error}` : null;
  };
  if (!isRunOver(run.state)) {
    if (run.cancelling) return t("runs.why.cancelling", { reason: translateReason(run.cancelling) });
    if (run.state === "queued")
      return run.notBefore ? t("runs.why.waitsUntil", { attempt: run.attempt }) : t("runs.why.queued");
    return t(`runs.now.${stage}`);
  }
  if (!result) return t(`runs.why.${run.state}`);
  // Missing deliverables are only a consequence.
  if (result.code === PROVIDER_KEY_REFUSED)
    return t("shell.provider.keyRefusedBy", { name: result.params.provider, where: result.params.key_setting });
  const endKey =
    result.endedBy === "exit" && isAgentExit(result.reason)
      ? agentExitKey(result.exitCode)
      : `runs.endedBy.${result.endedBy}`;
  const sentence = t(endKey, { code: result.exitCode ?? "?", defaultValue: result.reason });
  const missing = result.missing.filter((each) => each.required).map((each) => workspaceRelativePath(each.path));
  const failed = result.checks.filter((check) => check.required && !check.passed).map((check) => check.name);
  const more = [
    missing.length > 0 && t("runs.why.missing", { count: missing.length, names: missing.join(", ") }),
    failed.length > 0 && t("runs.why.checks", { count: failed.length, names: failed.join(", ") }),
  ].filter(Boolean);
  const translatedResult = more.length === 0 ? translateResult(result) : null;
  if (translatedResult) return translatedResult;
  const endedItself = result.endedBy === "exit";
  if (more.length > 0 || (run.state === "succeeded" && (endedItself || result.endedBy === "verified")))
    return [sentence, ...more].join(" ");
  const reason = translateReason(result.reason);
  // The server's reason of a failed exit is a whole sentence, and names the exit code as well.
  if (endedItself) return `${reason.charAt(0).toUpperCase()}${reason.slice(1)}.`;
  return `${sentence} ${t("runs.why.said", { reason })}`;
}
