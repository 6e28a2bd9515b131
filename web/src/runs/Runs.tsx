import { Ban, ListChecks, MoreHorizontal, OctagonX, Play, RotateCcw, Trash2 } from "lucide-react";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { may, useMe } from "@/shell/me";
import { Badge } from "@/ui/Badge";
import { Button, IconButton } from "@/ui/Button";
import { Coded } from "@/ui/Coded";
import { SearchBox, Select } from "@/ui/forms";
import { Menu } from "@/ui/Menu";
import { money } from "@/ui/money";
import { Page } from "@/ui/Page";
import { useSearchParams } from "@/ui/search";
import { Empty, Loaded } from "@/ui/states";
import { type Column, Table } from "@/ui/Table";
import { amount, duration, Time } from "@/ui/Time";
import { isOver, type Run, STATES, useRuns } from "./asking";
import { useDoing } from "./doing";
import { percent, secondsOf, tokensOf } from "./figures";
import styles from "./runs.module.css";
import { StateBadge } from "./StateBadge";
import { useNow } from "./useNow";

/** All runs, newest first. What is shown is in the address. */
export default function Runs() {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const me = useMe();
  const [search, setSearch] = useSearchParams();
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const { hidden, ...doing } = useDoing();
  const page = Math.max(1, Number(search.get("page")) || 1);
  const states = search.getAll("state").filter((each) => (STATES as string[]).includes(each));
  const group = search.get("group") ?? "";
  const filtered = states.length > 0 || group !== "" || search.has("name");
  const runs = useRuns({ states, group, name: search.get("name") ?? "", page });
  const writes = may(me.data, "runs:write");
  const narrow = (name: string, value: string) =>
    setSearch(
      (now) => {
        now.delete("page");
        if (value) now.set(name, value);
        else now.delete(name);
        return now;
      },
      { replace: true },
    );
  const columns = useColumns();
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
        <NameBox value={search.get("name") ?? ""} onChange={(name) => narrow("name", name)} />
        <div className={styles.filterState}>
          <Select
            aria-label={t("runs.filter.state")}
            value={states[0] ?? ""}
            onChange={(state) => narrow("state", state)}
            options={[
              { value: "", label: t("runs.filter.allStates") },
              ...STATES.map((state) => ({ value: state, label: t(`runs.state.${state}`) })),
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
      <Loaded
        query={runs}
        rows={6}
        isEmpty={({ items }) => items.length === 0}
        empty={
          filtered ? (
            <Empty
              icon={ListChecks}
              title={t("runs.noneFound")}
              action={<Button onClick={() => setSearch({})}>{t("runs.filter.clear")}</Button>}
            >
              {t("runs.noneFoundHint")}
            </Empty>
          ) : (
            <Empty icon={ListChecks} title={t("runs.none")} action={<Link href="/tasks">{t("runs.toTasks")}</Link>}>
              <Coded text={t("runs.noneHint")} />
            </Empty>
          )
        }
      >
        {({ items, pagination }) => {
          const rows = items.filter((run) => !hidden.has(run.id));
          const picked = rows.filter((run) => chosen.has(run.id));
          return (
            <>
              {picked.length > 0 && (
                <section className={styles.bulk} aria-label={t("runs.bulk", { count: picked.length })}>
                  <span>{t("runs.bulk", { count: picked.length })}</span>
                  <Button
                    size="small"
                    icon={Ban}
                    disabled={picked.every((run) => isOver(run.state))}
                    onClick={() => void doing.cancel(picked, false)}
                  >
                    {t("runs.cancel")}
                  </Button>
                  <Button size="small" icon={RotateCcw} onClick={() => void doing.retry(picked)}>
                    {t("runs.retry")}
                  </Button>
                  <Button
                    size="small"
                    icon={Trash2}
                    disabled={!picked.some((run) => isOver(run.state))}
                    onClick={() => doing.remove(picked, () => setChosen(new Set()))}
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
                actions={writes ? (run) => <Actions run={run} doing={doing} /> : undefined}
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
      </Loaded>
    </Page>
  );
}

/** The name must be whole, so it is asked for once it stands. */
function NameBox({ value, onChange }: { value: string; onChange: (name: string) => void }) {
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

function Actions({ run, doing }: { run: Run; doing: Omit<ReturnType<typeof useDoing>, "hidden"> }) {
  const { t } = useTranslation();
  const over = isOver(run.state);
  return (
    <Menu
      trigger={<IconButton size="small" icon={MoreHorizontal} label={t("runs.actions", { name: run.name })} />}
      items={[
        { label: t("runs.retry"), icon: RotateCcw, onSelect: () => void doing.retry([run]) },
        ...(over
          ? [{ label: t("common.delete"), icon: Trash2, tone: "danger" as const, onSelect: () => doing.remove([run]) }]
          : [
              { label: t("runs.cancel"), icon: Ban, onSelect: () => void doing.cancel([run], false) },
              {
                label: t("runs.cancelHard"),
                icon: OctagonX,
                tone: "danger" as const,
                onSelect: () => void doing.cancel([run], true),
              },
            ]),
      ]}
    />
  );
}

function useColumns(): Column<Run>[] {
  const { t, i18n } = useTranslation();
  const now = useNow();
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
    { id: "state", label: t("runs.column.state"), cell: (run) => <StateBadge run={run} /> },
    { id: "agent", label: t("runs.column.agent"), minor: true, cell: (run) => run.agent ?? dash },
    {
      id: "score",
      label: t("runs.column.score"),
      numeric: true,
      minor: true,
      cell: (run) => {
        const score = run.result?.score;
        return score === null || score === undefined ? dash : percent(score, i18n.language);
      },
    },
    {
      id: "duration",
      label: t("runs.column.duration"),
      numeric: true,
      cell: (run) => {
        const seconds = secondsOf(run, now);
        return seconds === null ? dash : duration(seconds);
      },
    },
    {
      id: "tokens",
      label: t("runs.column.tokens"),
      numeric: true,
      minor: true,
      cell: (run) => {
        const tokens = tokensOf(run);
        return tokens === null ? dash : amount(tokens, i18n.language);
      },
    },
    {
      id: "cost",
      label: t("runs.column.cost"),
      numeric: true,
      minor: true,
      cell: (run) => {
        const cost = run.result?.traffic.cost;
        return cost === null || cost === undefined ? dash : money(cost, i18n.language);
      },
    },
    { id: "at", label: t("runs.column.at"), minor: true, cell: (run) => <Time at={run.createdAt} /> },
  ];
}
