import { useQuery } from "@tanstack/react-query";
import { Box, Pause, Play, Trash2 } from "lucide-react";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useUrlQuery } from "@/shell/navigation/useUrlQuery";
import { Button } from "@/ui/controls/Button";
import { SearchBox, Select } from "@/ui/controls/forms";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { Table } from "@/ui/layout/Table";
import { SANDBOXES_QUERY, useHiddenSandboxes, useSandboxActions } from "./actions";
import { Pager } from "./Pager";
import styles from "./SandboxesPage.module.css";
import { SandboxMenu } from "./SandboxMenu";
import { useSandboxColumns } from "./sandbox-columns";
import {
  availableSandboxActions,
  LIVE_STATES,
  matchesSandboxFilter,
  type Sandbox,
  sandboxKind,
  sandboxStatesForFilter,
  sandboxTitle,
} from "./sandbox-properties";
import { useChatTitles } from "./useChatTitles";
import { useSnapshotNames } from "./useSnapshotNames";

const MAX_SANDBOXES = 200;

export function SandboxList({ writes }: { writes: boolean }) {
  const { t } = useTranslation();
  const { get, set } = useUrlQuery();
  const filter = { state: get("state"), kind: get("kind"), text: get("q") };
  const page = Math.max(1, Number(get("page")) || 1);
  const hidden = useHiddenSandboxes();
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const actions = useSandboxActions();
  const query = useQuery({
    queryKey: [SANDBOXES_QUERY, "list", filter.state, page],
    queryFn: ({ signal }) =>
      api.get<Schema<"SandboxListResponse">>("/v1/sandboxes", {
        query: { state: sandboxStatesForFilter(filter.state), page, pageSize: MAX_SANDBOXES },
        signal,
      }),
    refetchInterval: 4_000,
    placeholderData: (before) => before,
  });
  const items = query.data?.items;
  const columns = useSandboxColumns(
    useSnapshotNames(items?.some((sandbox) => sandbox.snapshotId) ?? false),
    useChatTitles(items?.some((sandbox) => sandbox.metadata.session) ?? false),
  );
  const kinds = useMemo(
    () => [...new Set((items ?? []).map(sandboxKind).filter((kind) => kind !== null))].sort(),
    [items],
  );
  const rows = (items ?? []).filter((sandbox) => !hidden.has(sandbox.id) && matchesSandboxFilter(sandbox, filter));
  const selected = rows.filter((sandbox) => chosen.has(sandbox.id));
  const sandboxesAllowing = (action: "pause" | "resume" | "delete") =>
    selected.filter((sandbox) => availableSandboxActions(sandbox).includes(action));
  const pages = query.data?.pagination.totalPages ?? 1;

  return (
    <div className={styles.stack}>
      <search className={styles.filters}>
        <SearchBox label={t("sandboxes.search")} value={filter.text} onChange={(text) => set({ q: text })} />
        <Select
          aria-label={t("sandboxes.state")}
          value={filter.state || "alive"}
          onChange={(state) => set({ state: state === "alive" ? "" : state, page: "" })}
          options={["alive", "all", "ended", ...LIVE_STATES, "Terminated", "Failed"].map((state) => ({
            value: state,
            label: t(`sandboxes.states.${state}`),
          }))}
        />
        <Select
          aria-label={t("sandboxes.kind")}
          value={filter.kind}
          onChange={(kind) => set({ kind })}
          options={[
            { value: "", label: t("sandboxes.allKinds") },
            ...[...new Set([...kinds, ...(filter.kind ? [filter.kind] : [])])].map((kind) => ({
              value: kind,
              label: kind,
            })),
          ]}
        />
        <span className={styles.count} role="status">
          {items && t("sandboxes.count", { count: rows.length })}
        </span>
      </search>
      {selected.length > 0 && (
        <div className={styles.bulk} role="toolbar" aria-label={t("sandboxes.bulk")}>
          <span>{t("sandboxes.chosen", { count: selected.length })}</span>
          <Button
            size="small"
            icon={Pause}
            disabled={!sandboxesAllowing("pause").length}
            onClick={() => void actions.performAction("pause", sandboxesAllowing("pause"))}
          >
            {t("sandboxes.deeds.pause")}
          </Button>
          <Button
            size="small"
            icon={Play}
            disabled={!sandboxesAllowing("resume").length}
            onClick={() => void actions.performAction("resume", sandboxesAllowing("resume"))}
          >
            {t("sandboxes.deeds.resume")}
          </Button>
          <Button
            size="small"
            icon={Trash2}
            disabled={!sandboxesAllowing("delete").length}
            onClick={() => {
              actions.removeSandboxes(sandboxesAllowing("delete").map((sandbox) => sandbox.id));
              setChosen(new Set());
            }}
          >
            {t("common.delete")}
          </Button>
        </div>
      )}
      <QueryResult query={query}>
        {() =>
          rows.length === 0 ? (
            <EmptyList
              filtered={Boolean(filter.kind || filter.text || filter.state)}
              clear={() => set({ q: "", kind: "", state: "" })}
            />
          ) : (
            <Table<Sandbox>
              label={t("sandboxes.title")}
              columns={columns}
              rows={rows}
              keyOf={(sandbox) => sandbox.id}
              chosen={
                writes
                  ? {
                      ids: chosen,
                      onChange: setChosen,
                      labelOf: (sandbox) => t("sandboxes.choose", { name: sandboxTitle(sandbox) }),
                      all: t("sandboxes.chooseAll"),
                    }
                  : undefined
              }
              actions={writes ? (sandbox) => <SandboxMenu sandbox={sandbox} actions={actions} /> : undefined}
            />
          )
        }
      </QueryResult>
      <Pager page={page} pages={pages} onPage={(to) => set({ page: String(to) })} />
    </div>
  );
}

function EmptyList({ filtered, clear }: { filtered: boolean; clear: () => void }) {
  const { t } = useTranslation();
  if (!filtered)
    return (
      <EmptyState icon={Box} title={t("sandboxes.none")}>
        {t("sandboxes.noneAbout")}
      </EmptyState>
    );
  return (
    <EmptyState
      icon={Box}
      title={t("sandboxes.noMatch")}
      action={<Button onClick={clear}>{t("sandboxes.clear")}</Button>}
    >
      {t("sandboxes.noMatchAbout")}
    </EmptyState>
  );
}
