import { useQuery } from "@tanstack/react-query";
import { Camera, Plus, Trash2 } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useUrlQuery } from "@/shell/navigation/useUrlQuery";
import { Badge, type Tone } from "@/ui/controls/Badge";
import { Button, IconButton } from "@/ui/controls/Button";
import { RelativeTime } from "@/ui/format/formats";
import { translateServerText } from "@/ui/format/server-text";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { Table } from "@/ui/layout/Table";
import { SANDBOXES_QUERY, useHiddenSandboxes, useSandboxActions } from "./actions";
import { Pager } from "./Pager";
import styles from "./SandboxesPage.module.css";

type Snapshot = Schema<"SnapshotResponse">;
const TONES: Record<Schema<"SnapshotState">, Tone> = {
  Creating: "info",
  Ready: "good",
  Deleting: "neutral",
  Failed: "danger",
};

export function SnapshotList({ writes }: { writes: boolean }) {
  const { t } = useTranslation();
  const { get, set } = useUrlQuery();
  const page = Math.max(1, Number(get("page")) || 1);
  const hidden = useHiddenSandboxes();
  const { removeSnapshots } = useSandboxActions();
  const query = useQuery({
    queryKey: [SANDBOXES_QUERY, "snapshots", page],
    queryFn: ({ signal }) =>
      api.get<Schema<"SnapshotListResponse">>("/v1/snapshots", { query: { page, pageSize: 100 }, signal }),
    refetchInterval: 6_000,
  });
  const pages = query.data?.pagination.totalPages ?? 1;
  return (
    <div className={styles.stack}>
      <QueryResult query={query}>
        {({ items }) => {
          const rows = items.filter((each) => !hidden.has(each.id));
          if (rows.length === 0)
            return (
              <EmptyState icon={Camera} title={t("sandboxes.snapshots.none")}>
                {t("sandboxes.snapshots.noneAbout")}
              </EmptyState>
            );
          return (
            <Table<Snapshot>
              label={t("sandboxes.snapshots.title")}
              rows={rows}
              keyOf={(each) => each.id}
              columns={[
                {
                  id: "name",
                  label: t("sandboxes.snapshots.name"),
                  cell: (each) => <bdi className={each.name ? undefined : styles.id}>{each.name || each.id}</bdi>,
                },
                {
                  id: "state",
                  label: t("sandboxes.state"),
                  cell: (each) => (
                    <Badge
                      tone={TONES[each.status.state]}
                      title={each.status.message ? translateServerText(each.status.message) : undefined}
                    >
                      {t(`sandboxes.snapshots.states.${each.status.state}`)}
                    </Badge>
                  ),
                },
                {
                  id: "of",
                  label: t("sandboxes.snapshots.of"),
                  cell: (each) => (
                    <Link href={`/sandboxes/${encodeURIComponent(each.sandboxId)}`} className={styles.id}>
                      {each.sandboxId}
                    </Link>
                  ),
                  minor: true,
                },
                { id: "age", label: t("sandboxes.made"), cell: (each) => <RelativeTime at={each.createdAt} /> },
              ]}
              actions={
                writes
                  ? (each) => (
                      <span className={styles.actions}>
                        <Button
                          size="small"
                          icon={Plus}
                          disabled={each.status.state !== "Ready"}
                          onClick={() => set({ create: "1", snapshot: each.id })}
                        >
                          {t("sandboxes.snapshots.use")}
                        </Button>
                        <IconButton
                          size="small"
                          icon={Trash2}
                          label={t("sandboxes.snapshots.delete", { name: each.name || each.id })}
                          disabled={each.status.state === "Creating"}
                          onClick={() => removeSnapshots([each.id])}
                        />
                      </span>
                    )
                  : undefined
              }
            />
          );
        }}
      </QueryResult>
      <Pager page={page} pages={pages} onPage={(to) => set({ page: String(to) })} />
    </div>
  );
}
