import { useQueries } from "@tanstack/react-query";
import { Rows3, Trophy } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link, useParams } from "wouter";
import { address, api } from "@/api/client";
import { Badge } from "@/ui/Badge";
import { Coded } from "@/ui/Coded";
import { money } from "@/ui/money";
import { Page } from "@/ui/Page";
import { Empty, Loaded } from "@/ui/states";
import { amount, duration, size } from "@/ui/Time";
import { isOver, type Run, useRuns, type WholeRun } from "./asking";
import styles from "./compare.module.css";
import { type Best, bestOf, percent, placeOf, secondsOf, shortPath, tokensOf } from "./figures";
import { StateBadge } from "./StateBadge";
import { useNow } from "./useNow";

/** Runs of one group side by side: a column for each, what they differ in as rows, the best of each row marked. */
export default function CompareRuns() {
  const { t } = useTranslation();
  const { group = "" } = useParams<{ group: string }>();
  const runs = useRuns({ states: [], name: "", group, page: 1 }, 100);
  return (
    <Page
      title={t("runs.compareTitle")}
      about={
        <>
          <Link href={address("/runs", { group })}>{t("runs.asList")}</Link> · {group}
        </>
      }
    >
      <Loaded
        query={runs}
        isEmpty={({ items }) => items.length === 0}
        empty={
          <Empty icon={Rows3} title={t("runs.noGroup")}>
            <Coded text={t("runs.noGroupHint")} />
          </Empty>
        }
      >
        {({ items }) => <Side runs={items.toReversed()} />}
      </Loaded>
    </Page>
  );
}

function Side({ runs }: { runs: Run[] }) {
  const { t, i18n } = useTranslation();
  const now = useNow(runs.some((run) => !isOver(run.state)));
  const best = bestOf(runs);
  const whole = useQueries({
    queries: runs.map((run) => ({
      queryKey: ["runs", "one", run.id, run.state],
      queryFn: ({ signal }: { signal: AbortSignal }) => api.get<WholeRun>(`/v1/runs/${run.id}`, { signal }),
      enabled: isOver(run.state),
      staleTime: Number.POSITIVE_INFINITY,
    })),
  }).map((query) => query.data);
  const files = [
    ...new Set(
      whole.flatMap((run) => [
        ...(run?.result?.deliverables ?? []).map((each) => each.path),
        ...(run?.result?.missing ?? []).map((each) => shortPath(each.path)),
      ]),
    ),
  ];
  const checks = [...new Set(whole.flatMap((run) => run?.result?.checks.map((check) => check.name) ?? []))];
  const number = (value: number | null | undefined, shown: (value: number) => string, of: keyof Best): ReactNode =>
    value === null || value === undefined ? (
      <span aria-hidden>–</span>
    ) : best[of] === value ? (
      <span className={styles.best} title={t("runs.best")}>
        {shown(value)} <Trophy size={14} aria-label={t("runs.best")} />
      </span>
    ) : (
      shown(value)
    );
  const rows: [string, (run: Run, index: number) => ReactNode][] = [
    [t("runs.column.state"), (run) => <StateBadge run={run} />],
    [t("runs.column.agent"), (run) => run.agent ?? "–"],
    [t("runs.fact.model"), (run) => (run.scripted ? t("runs.byScript") : (run.model ?? "–"))],
    [t("runs.column.score"), (run) => number(run.result?.score, (value) => percent(value, i18n.language), "score")],
    [t("runs.column.duration"), (run) => number(run.result?.seconds ?? secondsOf(run, now), duration, "seconds")],
    [t("runs.column.tokens"), (run) => number(tokensOf(run), (value) => amount(value, i18n.language), "tokens")],
    [t("runs.column.cost"), (run) => number(run.result?.traffic.cost, (value) => money(value, i18n.language), "cost")],
    [t("runs.fact.turns"), (run) => run.result?.turns ?? "–"],
  ];
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard.
    <section className={styles.frame} aria-label={t("runs.compareTitle")} tabIndex={0}>
      <table className={styles.table}>
        <thead>
          <tr>
            <td />
            {runs.map((run) => (
              <th key={run.id} scope="col">
                <Link href={`/runs/${run.id}`}>{placeOf(run)}</Link>
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
          <Section label={t("runs.tab.checks")} names={checks} runs={runs}>
            {(name, index) => {
              const check = whole[index]?.result?.checks.find((each) => each.name === name);
              if (!check) return <span aria-hidden>–</span>;
              return (
                <Badge tone={check.passed ? "good" : "danger"}>
                  {check.passed ? t("runs.passed") : t("runs.notPassed")}
                </Badge>
              );
            }}
          </Section>
          <Section label={t("runs.tab.deliverables")} names={files} runs={runs} mono>
            {(name, index, run) => {
              const file = whole[index]?.result?.deliverables.find((each) => each.path === name);
              if (file)
                return (
                  <Link href={address(`/runs/${run.id}`, { tab: "deliverables", path: name })}>{size(file.size)}</Link>
                );
              const missing = whole[index]?.result?.missing.some((each) => shortPath(each.path) === name);
              return missing ? <Badge tone="danger">{t("runs.missing")}</Badge> : <span aria-hidden>–</span>;
            }}
          </Section>
        </tbody>
      </table>
    </section>
  );
}

interface SectionProps {
  label: string;
  names: string[];
  runs: Run[];
  mono?: boolean;
  children: (name: string, index: number, run: Run) => ReactNode;
}

function Section({ label, names, runs, mono, children }: SectionProps) {
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
