import { Ban, ListChecks, MoreHorizontal, OctagonX, Play, RotateCcw, Trash2 } from "lucide-react";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Badge } from "@/ui/controls/Badge";
import { Button, IconButton } from "@/ui/controls/Button";
import { SearchBox, Select } from "@/ui/controls/forms";
import { Menu } from "@/ui/controls/Menu";
import { formatCount, formatDuration, RelativeTime } from "@/ui/format/formats";
import { formatMoney } from "@/ui/format/money";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { Page } from "@/ui/layout/Page";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { type Column, Table } from "@/ui/layout/Table";
import { useRunActions } from "./actions";
import { isRunOver, RUN_STATES, type Run, useRuns } from "./api";
import { RunStateBadge } from "./RunStateBadge";
import { formatPercent, runDurationSeconds, runTokenCount } from "./run-metrics";
import styles from "./runs.module.css";
import { useCurrentTime } from "./useCurrentTime";

/** All runs, newest first. Filters are in the URL. */
export default function RunsPage() {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const me = useCurrentUser();
  const [search, setSearch] = useSearchParams();
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const { hidden, ...runActions } = useRunActions();
  const page = Math.max(1, Number(search.get("page")) || 1);
  const states = search.getAll("state").filter((each) => (RUN_STATES as string[]).includes(each));
  const group = search.get("group") ?? "";
  const filtered = states.length > 0 || group !== "" || search.has("name");
  const runs = useRuns({ states, group, name: search.get("name") ?? "", page });
  const writes = hasScope(me.data, "runs:write");
  const narrow = (name: string, value: string) =>
    setSearch(
      (params) => {
        params.delete("page");
        if (value) params.set(name, value);
        else params.delete(name);
        return params;
      },
      { replace: true },
    );
  const columns = useRunColumns();
  return (
    <Page
      title={t("runs.title")}
      about={t("runs.about")}
      actions={
        <Button tone="accent" icon={Play} onClick={() => go("/tasks")} disabled={!writes}>
          {t("runs.start")}
        </Button>
      }
    >
      <search className={styles.filters}>
        <NameFilter value={search.get("name") ?? ""} onChange={(name) => narrow("name", name)} />
        <div className={styles.filterState}>
          <Select
            aria-label={t("runs.filter.state")}
            value={states[0] ?? ""}
            onChange={(state) => narrow("state", state)}
            options={[
              { value: "", label: t("runs.filter.allStates") },
              ...RUN_STATES.map((state) => ({ value: state, label: t(`runs.state.${state}`) })),
            ]}
          />
        </div>
        {group && (
          <span className={styles.groupFilter}>
            <Badge>{t("runs.filter.group", { group })}</Badge>
            <Link href={`/runs/compare/${encodeURIComponent(group)}`}>{t("runs.compare")}</Link>
            <Button size="small" onClick={() => narrow("group", "")}>
              {t("runs.filter.clearGroup")}
            </Button>
          </span>
        )}
      </search>
      <QueryResult
        query={runs}
        rows={6}
        isEmpty={({ items }) => items.length === 0}
        empty={
          filtered ? (
            <EmptyState
              icon={ListChecks}
              title={t("runs.noneFound")}
              action={<Button onClick={() => setSearch({})}>{t("runs.filter.clear")}</Button>}
            >
              {t("runs.noneFoundHint")}
            </EmptyState>
          ) : (
            <EmptyState
              icon={ListChecks}
              title={t("runs.none")}
              action={<Link href="/tasks">{t("runs.toTasks")}</Link>}
            >
              <TextWithCode text={t("runs.noneHint")} />
            </EmptyState>
          )
        }
      >
        {({ items, pagination }) => {
          const rows = items.filter((run) => !hidden.has(run.id));
          const selectedRuns = rows.filter((run) => chosen.has(run.id));
          return (
            <>
              {selectedRuns.length > 0 && (
                <section className={styles.bulk} aria-label={t("runs.bulk", { count: selectedRuns.length })}>
                  <span>{t("runs.bulk", { count: selectedRuns.length })}</span>
                  <Button
                    size="small"
                    icon={Ban}
                    disabled={selectedRuns.every((run) => isRunOver(run.state))}
                    onClick={() => void runActions.cancel(selectedRuns, false)}
                  >
                    {t("runs.cancel")}
                  </Button>
                  <Button size="small" icon={RotateCcw} onClick={() => void runActions.retry(selectedRuns)}>
                    {t("runs.retry")}
                  </Button>
                  <Button
                    size="small"
                    icon={Trash2}
                    disabled={!selectedRuns.some((run) => isRunOver(run.state))}
                    onClick={() => runActions.remove(selectedRuns, () => setChosen(new Set()))}
                  >
                    {t("common.delete")}
                  </Button>
                </section>
              )}
              <Table
                label={t("runs.title")}
                columns={columns}
                rows={rows}
                keyOf={(run) => run.id}
                chosen={
                  writes
                    ? {
                        ids: chosen,
                        onChange: setChosen,
                        labelOf: (run) => t("runs.choose", { name: run.name }),
                        all: t("runs.chooseAll"),
                      }
                    : undefined
                }
                actions={writes ? (run) => <RunRowActions run={run} runActions={runActions} /> : undefined}
              />
              {(pagination.totalPages ?? 1) > 1 && (
                <nav className={styles.pages} aria-label={t("runs.pages")}>
                  <Button disabled={page <= 1} onClick={() => narrow("page", String(page - 1))}>
                    {t("runs.newer")}
                  </Button>
                  <span>{t("runs.page", { page, of: pagination.totalPages })}</span>
                  <Button disabled={!pagination.hasNextPage} onClick={() => narrow("page", String(page + 1))}>
                    {t("runs.older")}
                  </Button>
                </nav>
              )}
            </>
          );
        }}
      </QueryResult>
    </Page>
  );
}

/** The name filter matches whole names, so it is applied after a pause in typing. */
function NameFilter({ value, onChange }: { value: string; onChange: (name: string) => void }) {
  const { t } = useTranslation();
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onChange(text.trim());
      }}
    >
      <SearchBox
        label={t("runs.filter.name")}
        value={text}
        onChange={(next) => {
          setText(next);
          if (next === "") onChange("");
        }}
      />
    </form>
  );
}

function RunRowActions({
  run,
  runActions,
}: {
  run: Run;
  runActions: Omit<ReturnType<typeof useRunActions>, "hidden">;
}) {
  const { t } = useTranslation();
  const over = isRunOver(run.state);
  return (
    <Menu
      trigger={<IconButton size="small" icon={MoreHorizontal} label={t("runs.actions", { name: run.name })} />}
      items={[
        { label: t("runs.retry"), icon: RotateCcw, onSelect: () => void runActions.retry([run]) },
        ...(over
          ? [
              {
                label: t("common.delete"),
                icon: Trash2,
                tone: "danger" as const,
                onSelect: () => runActions.remove([run]),
              },
            ]
          : [
              { label: t("runs.cancel"), icon: Ban, onSelect: () => void runActions.cancel([run], false) },
              {
                label: t("runs.cancelHard"),
                icon: OctagonX,
                tone: "danger" as const,
                onSelect: () => void runActions.cancel([run], true),
              },
            ]),
      ]}
    />
  );
}

function useRunColumns(): Column<Run>[] {
  const { t, i18n } = useTranslation();
  const now = useCurrentTime();
  const dash = <span aria-hidden>–</span>;
  return [
    {
      id: "name",
      label: t("runs.column.name"),
      cell: (run) => (
        <span className={styles.nameCell}>
          <Link href={`/runs/${run.id}`} className={styles.name}>
            {run.name}
          </Link>
          {run.group && (
            <Link href={`/runs/compare/${encodeURIComponent(run.group)}`} className={styles.quietLink}>
              {t("runs.compare")}
            </Link>
          )}
        </span>
      ),
    },
    { id: "state", label: t("runs.column.state"), cell: (run) => <RunStateBadge run={run} /> },
    { id: "agent", label: t("runs.column.agent"), minor: true, cell: (run) => run.agent ?? dash },
    {
      id: "score",
      label: t("runs.column.score"),
      numeric: true,
      minor: true,
      cell: (run) => {
        const score = run.result?.score;
        return score === null || score === undefined ? dash : formatPercent(score, i18n.language);
      },
    },
    {
      id: "duration",
      label: t("runs.column.duration"),
      numeric: true,
      cell: (run) => {
        const seconds = runDurationSeconds(run, now);
        return seconds === null ? dash : formatDuration(seconds);
      },
    },
    {
      id: "tokens",
      label: t("runs.column.tokens"),
      numeric: true,
      minor: true,
      cell: (run) => {
        const tokens = runTokenCount(run);
        return tokens === null ? dash : formatCount(tokens, i18n.language);
      },
    },
    {
      id: "cost",
      label: t("runs.column.cost"),
      numeric: true,
      minor: true,
      cell: (run) => {
        const cost = run.result?.traffic.cost;
        return cost === null || cost === undefined ? dash : formatMoney(cost, i18n.language);
      },
    },
    { id: "at", label: t("runs.column.at"), minor: true, cell: (run) => <RelativeTime at={run.createdAt} /> },
  ];
}
