import { useQuery } from "@tanstack/react-query";
import { Box, Pause, Play, Trash2 } from "lucide-react";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useAddress } from "@/shell/address";
import { Button } from "@/ui/Button";
import { SearchBox, Select } from "@/ui/forms";
import { Empty, Loaded } from "@/ui/states";
import { Table } from "@/ui/Table";
import { SANDBOXES, useDeeds, useHidden } from "./actions";
import { BoxMenu } from "./BoxMenu";
import { useColumns } from "./columns";
import { ALIVE, deedsOf, kindOf, passes, type Sandbox, statesOf, titleOf } from "./facts";
import { Pager } from "./Pager";
import styles from "./Sandboxes.module.css";
import { useChatTitles } from "./useChatTitles";
import { useSnapshotNames } from "./useSnapshotNames";

const MOST = 200;

export function SandboxList({ writes }: { writes: boolean }) {
  const { t } = useTranslation();
  const { get, set } = useAddress();
  const filter = { state: get("state"), kind: get("kind"), text: get("q") };
  const page = Math.max(1, Number(get("page")) || 1);
  const hidden = useHidden();
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const deeds = useDeeds();
  const query = useQuery({
    queryKey: [SANDBOXES, "list", filter.state, page],
    queryFn: ({ signal }) =>
      api.get<Schema<"SandboxList">>("/v1/sandboxes", {
        query: { state: statesOf(filter.state), page, pageSize: MOST },
        signal,
      }),
    refetchInterval: 4_000,
    placeholderData: (before) => before,
  });
  const items = query.data?.items;
  const columns = useColumns(
    useSnapshotNames(items?.some((box) => box.snapshotId) ?? false),
    useChatTitles(items?.some((box) => box.metadata.session) ?? false),
  );
  const kinds = useMemo(() => [...new Set((items ?? []).map(kindOf).filter((kind) => kind !== null))].sort(), [items]);
  const rows = (items ?? []).filter((box) => !hidden.has(box.id) && passes(box, filter));
  const picked = rows.filter((box) => chosen.has(box.id));
  const able = (deed: "pause" | "resume" | "delete") => picked.filter((box) => deedsOf(box).includes(deed));
  const pages = query.data?.pagination.totalPages ?? 1;

  return (
    <div className={styles.stack}>
      <search className={styles.filters}>
        <SearchBox label={t("sandboxes.search")} value={filter.text} onChange={(text) => set({ q: text })} />
        <Select
          aria-label={t("sandboxes.state")}
          value={filter.state || "alive"}
          onChange={(state) => set({ state: state === "alive" ? "" : state, page: "" })}
          options={["alive", "all", "ended", ...ALIVE, "Terminated", "Failed"].map((state) => ({
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
      {picked.length > 0 && (
        <div className={styles.bulk} role="toolbar" aria-label={t("sandboxes.bulk")}>
          <span>{t("sandboxes.chosen", { count: picked.length })}</span>
          <Button
            size="small"
            icon={Pause}
            disabled={!able("pause").length}
            onClick={() => void deeds.perform("pause", able("pause"))}
          >
            {t("sandboxes.deeds.pause")}
          </Button>
          <Button
            size="small"
            icon={Play}
            disabled={!able("resume").length}
            onClick={() => void deeds.perform("resume", able("resume"))}
          >
            {t("sandboxes.deeds.resume")}
          </Button>
          <Button
            size="small"
            icon={Trash2}
            disabled={!able("delete").length}
            onClick={() => {
              deeds.removeBoxes(able("delete").map((box) => box.id));
              setChosen(new Set());
            }}
          >
            {t("common.delete")}
          </Button>
        </div>
      )}
      <Loaded query={query}>
        {() =>
          rows.length === 0 ? (
            <Nothing
              filtered={Boolean(filter.kind || filter.text || filter.state)}
              clear={() => set({ q: "", kind: "", state: "" })}
            />
          ) : (
            <Table<Sandbox>
              label={t("sandboxes.title")}
              columns={columns}
              rows={rows}
              keyOf={(box) => box.id}
              chosen={
                writes
                  ? {
                      ids: chosen,
                      onChange: setChosen,
                      labelOf: (box) => t("sandboxes.choose", { name: titleOf(box) }),
                      all: t("sandboxes.chooseAll"),
                    }
                  : undefined
              }
              actions={writes ? (box) => <BoxMenu box={box} deeds={deeds} /> : undefined}
            />
          )
        }
      </Loaded>
      <Pager page={page} pages={pages} onPage={(to) => set({ page: String(to) })} />
    </div>
  );
}

function Nothing({ filtered, clear }: { filtered: boolean; clear: () => void }) {
  const { t } = useTranslation();
  if (!filtered)
    return (
      <Empty icon={Box} title={t("sandboxes.none")}>
        {t("sandboxes.noneAbout")}
      </Empty>
    );
  return (
    <Empty icon={Box} title={t("sandboxes.noMatch")} action={<Button onClick={clear}>{t("sandboxes.clear")}</Button>}>
      {t("sandboxes.noMatchAbout")}
    </Empty>
  );
}
