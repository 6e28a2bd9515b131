import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { money } from "@/ui/money";
import { amount, duration, Time } from "@/ui/Time";
import { isOver, type WholeRun } from "./asking";
import type { Feed } from "./feed";
import { percent, secondsOf } from "./figures";
import styles from "./run.module.css";
import { useNow } from "./useNow";

/** The figures of a run, live while it goes on. */
export function Facts({ run, feed }: { run: WholeRun; feed: Feed }) {
  const { t, i18n } = useTranslation();
  const over = isOver(run.state);
  const now = useNow(!over);
  const traffic = run.result?.traffic ?? feed.figures;
  const seconds = secondsOf(run, now);
  const turns = run.result?.turns ?? feed.figures?.turns;
  const score = run.result?.score;
  const sandbox = feed.sandbox ?? run.sandboxId;
  const model = run.scripted ? t("runs.byScript") : (run.model ?? feed.model);
  const cost = traffic?.cost;
  const facts: [string, ReactNode][] = [
    ["agent", run.agent],
    ["model", model],
    ["duration", seconds === null ? null : duration(seconds)],
    ["score", score === null || score === undefined ? null : percent(score, i18n.language)],
    ["turns", turns ? amount(turns, i18n.language) : null],
    ["requests", traffic?.requests ? amount(traffic.requests, i18n.language) : null],
    [
      "tokens",
      traffic && traffic.inputTokens + traffic.outputTokens > 0
        ? t("runs.tokensInOut", {
            input: amount(traffic.inputTokens, i18n.language),
            output: amount(traffic.outputTokens, i18n.language),
          })
        : null,
    ],
    ["cost", traffic?.requests && cost !== null && cost !== undefined ? money(cost, i18n.language) : null],
    ["attempt", run.attempt > 1 ? String(run.attempt) : null],
    ["sandbox", sandbox ? <SandboxLink key="sandbox" sandbox={sandbox} gone={over} /> : null],
    ["asked", <Time key="at" at={run.createdAt} />],
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

/** To the sandbox itself while it is there, and then to what was said in it. */
function SandboxLink({ sandbox, gone }: { sandbox: string; gone: boolean }) {
  return <Link href={gone ? `/archive/sandboxes/${sandbox}` : `/sandboxes/${sandbox}`}>{sandbox}</Link>;
}
