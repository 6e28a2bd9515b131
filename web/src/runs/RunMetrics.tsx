import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { formatAmount, formatDuration, RelativeTime } from "@/ui/format/formats";
import { formatMoney } from "@/ui/format/money";
import { isRunOver, type RunDetail } from "./api";
import styles from "./run.module.css";
import type { RunFeed } from "./run-feed";
import { formatPercent, runDurationSeconds } from "./run-metrics";
import { useCurrentTime } from "./useCurrentTime";

/** Metrics of a run, updated while it is running. */
export function RunMetrics({ run, feed }: { run: RunDetail; feed: RunFeed }) {
  const { t, i18n } = useTranslation();
  const over = isRunOver(run.state);
  const now = useCurrentTime(!over);
  const traffic = run.result?.traffic ?? feed.figures;
  const seconds = runDurationSeconds(run, now);
  const turns = run.result?.turns ?? feed.figures?.turns;
  const score = run.result?.score;
  const sandbox = feed.sandbox ?? run.sandboxId;
  const model = run.scripted ? t("runs.byScript") : (run.model ?? feed.model);
  const cost = traffic?.cost;
  const facts: [string, ReactNode][] = [
    ["agent", run.agent],
    ["model", model],
    ["duration", seconds === null ? null : formatDuration(seconds)],
    ["score", score === null || score === undefined ? null : formatPercent(score, i18n.language)],
    ["turns", turns ? formatAmount(turns, i18n.language) : null],
    ["requests", traffic?.requests ? formatAmount(traffic.requests, i18n.language) : null],
    [
      "tokens",
      traffic && traffic.inputTokens + traffic.outputTokens > 0
        ? t("runs.tokensInOut", {
            input: formatAmount(traffic.inputTokens, i18n.language),
            output: formatAmount(traffic.outputTokens, i18n.language),
          })
        : null,
    ],
    ["cost", traffic?.requests && cost !== null && cost !== undefined ? formatMoney(cost, i18n.language) : null],
    ["attempt", run.attempt > 1 ? String(run.attempt) : null],
    ["sandbox", sandbox ? <SandboxLink key="sandbox" sandbox={sandbox} gone={over} /> : null],
    ["asked", <RelativeTime key="at" at={run.createdAt} />],
  ];
  return (
    <dl className={styles.facts}>
      {facts
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{t(`runs.fact.${name}`)}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** Link to the sandbox while it exists, then to its conversations. */
function SandboxLink({ sandbox, gone }: { sandbox: string; gone: boolean }) {
  return <Link href={gone ? `/archive/sandboxes/${sandbox}` : `/sandboxes/${sandbox}`}>{sandbox}</Link>;
}
