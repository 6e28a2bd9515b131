import { useQueries } from "@tanstack/react-query";
import { Rows3, Trophy } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link, useParams } from "wouter";
import { api, buildUrl } from "@/api/client";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Badge } from "@/ui/controls/Badge";
import { formatBytes, formatCount, formatDuration } from "@/ui/format/formats";
import { formatMoney } from "@/ui/format/money";
import { Page } from "@/ui/layout/Page";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { isRunOver, type Run, type RunDetail, useRuns } from "./api";
import styles from "./compare.module.css";
import { RunStateBadge } from "./RunStateBadge";
import {
  type BestRunMetrics,
  bestRunMetrics,
  formatPercent,
  matrixCellName,
  runDurationSeconds,
  runTokenCount,
  workspaceRelativePath,
} from "./run-metrics";
import { useCurrentTime } from "./useCurrentTime";

/** Runs of one group side by side: a column per run, metrics as rows, best values highlighted. */
export default function CompareRuns() {
  const { t } = useTranslation();
  const { group = "" } = useParams<{ group: string }>();
  const runs = useRuns({ states: [], name: "", group, page: 1 }, 100);
  return (
    <Page
      title={t("runs.compareTitle")}
      about={
        <>
          <Link href={buildUrl("/runs", { group })}>{t("runs.asList")}</Link> · {group}
        </>
      }
    >
      <QueryResult
        query={runs}
        isEmpty={({ items }) => items.length === 0}
        empty={
          <EmptyState icon={Rows3} title={t("runs.noGroup")}>
            <TextWithCode text={t("runs.noGroupHint")} />
          </EmptyState>
        }
      >
        {({ items }) => <SideBySideTable runs={items.toReversed()} />}
      </QueryResult>
    </Page>
  );
}

function SideBySideTable({ runs }: { runs: Run[] }) {
  const { t, i18n } = useTranslation();
  const now = useCurrentTime(runs.some((run) => !isRunOver(run.state)));
  const best = bestRunMetrics(runs);
  const details = useQueries({
    queries: runs.map((run) => ({
      queryKey: ["runs", "one", run.id, run.state],
      queryFn: ({ signal }: { signal: AbortSignal }) => api.get<RunDetail>(`/v1/runs/${run.id}`, { signal }),
      enabled: isRunOver(run.state),
      staleTime: Number.POSITIVE_INFINITY,
    })),
  }).map((query) => query.data);
  const files = [
    ...new Set(
      details.flatMap((run) => [
        ...(run?.result?.deliverables ?? []).map((each) => each.path),
        ...(run?.result?.missing ?? []).map((each) => workspaceRelativePath(each.path)),
      ]),
    ),
  ];
  const checks = [...new Set(details.flatMap((run) => run?.result?.checks.map((check) => check.name) ?? []))];
  const number = (
    value: number | null | undefined,
    format: (value: number) => string,
    metric: keyof BestRunMetrics,
  ): ReactNode =>
    value === null || value === undefined ? (
      <span aria-hidden>–</span>
    ) : best[metric] === value ? (
      <span className={styles.best} title={t("runs.best")}>
        {format(value)} <Trophy size={14} aria-label={t("runs.best")} />
      </span>
    ) : (
      format(value)
    );
  const rows: [string, (run: Run, index: number) => ReactNode][] = [
    [t("runs.column.state"), (run) => <RunStateBadge run={run} />],
    [t("runs.column.agent"), (run) => run.agent ?? "–"],
    [t("runs.fact.model"), (run) => (run.scripted ? t("runs.byScript") : (run.model ?? "–"))],
    [
      t("runs.column.score"),
      (run) => number(run.result?.score, (value) => formatPercent(value, i18n.language), "score"),
    ],
    [
      t("runs.column.duration"),
      (run) => number(run.result?.seconds ?? runDurationSeconds(run, now), formatDuration, "seconds"),
    ],
    [
      t("runs.column.tokens"),
      (run) => number(runTokenCount(run), (value) => formatCount(value, i18n.language), "tokens"),
    ],
    [
      t("runs.column.cost"),
      (run) => number(run.result?.traffic.cost, (value) => formatMoney(value, i18n.language), "cost"),
    ],
    [t("runs.fact.turns"), (run) => run.result?.turns ?? "–"],
  ];
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
    <section className={styles.frame} aria-label={t("runs.compareTitle")} tabIndex={0}>
      <table className={styles.table}>
        <thead>
          <tr>
            <td />
            {runs.map((run) => (
              <th key={run.id} scope="col">
                <Link href={`/runs/${run.id}`}>{matrixCellName(run)}</Link>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([label, cell]) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              {runs.map((run, index) => (
                <td key={run.id}>{cell(run, index)}</td>
              ))}
            </tr>
          ))}
          <ComparisonSection label={t("runs.tab.checks")} names={checks} runs={runs}>
            {(name, index) => {
              const check = details[index]?.result?.checks.find((each) => each.name === name);
              if (!check) return <span aria-hidden>–</span>;
              return (
                <Badge tone={check.passed ? "good" : "danger"}>
                  {check.passed ? t("runs.passed") : t("runs.notPassed")}
                </Badge>
              );
            }}
          </ComparisonSection>
          <ComparisonSection label={t("runs.tab.deliverables")} names={files} runs={runs} mono>
            {(name, index, run) => {
              const file = details[index]?.result?.deliverables.find((each) => each.path === name);
              if (file)
                return (
                  <Link href={buildUrl(`/runs/${run.id}`, { tab: "deliverables", path: name })}>
                    {formatBytes(file.size)}
                  </Link>
                );
              const missing = details[index]?.result?.missing.some((each) => workspaceRelativePath(each.path) === name);
              return missing ? <Badge tone="danger">{t("runs.missing")}</Badge> : <span aria-hidden>–</span>;
            }}
          </ComparisonSection>
        </tbody>
      </table>
    </section>
  );
}

interface ComparisonSectionProps {
  label: string;
  names: string[];
  runs: Run[];
  mono?: boolean;
  children: (name: string, index: number, run: Run) => ReactNode;
}

function ComparisonSection({ label, names, runs, mono, children }: ComparisonSectionProps) {
  if (names.length === 0) return null;
  return (
    <>
      <tr className={styles.section}>
        <th scope="rowgroup" colSpan={runs.length + 1}>
          {label}
        </th>
      </tr>
      {names.map((name) => (
        <tr key={name}>
          <th scope="row" className={mono ? styles.mono : undefined}>
            {name}
          </th>
          {runs.map((run, index) => (
            <td key={run.id}>{children(name, index, run)}</td>
          ))}
        </tr>
      ))}
    </>
  );
}
