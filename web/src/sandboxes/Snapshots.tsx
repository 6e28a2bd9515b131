import { useQuery } from "@tanstack/react-query";
import { Camera, Plus, Trash2 } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useAddress } from "@/shell/address";
import { Badge, type Tone } from "@/ui/Badge";
import { Button, IconButton } from "@/ui/Button";
import { Empty, Loaded } from "@/ui/states";
import { Table } from "@/ui/Table";
import { Time } from "@/ui/Time";
import { SANDBOXES, useDeeds, useHidden } from "./actions";
import { Pager } from "./Pager";
import styles from "./Sandboxes.module.css";

type Snapshot = Schema<"SnapshotSaid">;
const TONES: Record<Schema<"SnapshotState">, Tone> = {
  Creating: "info",
  Ready: "good",
  Deleting: "neutral",
  Failed: "danger",
};

export function Snapshots({ writes }: { writes: boolean }) {
  const { t } = useTranslation();
  const { get, set } = useAddress();
  const page = Math.max(1, Number(get("page")) || 1);
  const hidden = useHidden();
  const { removeSnapshots } = useDeeds();
  const query = useQuery({
    queryKey: [SANDBOXES, "snapshots", page],
    queryFn: ({ signal }) =>
      api.get<Schema<"SnapshotList">>("/v1/snapshots", { query: { page, pageSize: 100 }, signal }),
    refetchInterval: 6_000,
  });
  const pages = query.data?.pagination.totalPages ?? 1;
  return (
    <div className={styles.stack}>
      <Loaded query={query}>
        {({ items }) => {
          const rows = items.filter((each) => !hidden.has(each.id));
          if (rows.length === 0)
            return (
              <Empty icon={Camera} title={t("sandboxes.snapshots.none")}>
                {t("sandboxes.snapshots.noneAbout")}
              </Empty>
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
                    <Badge tone={TONES[each.status.state]} title={each.status.message ?? undefined}>
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
                { id: "age", label: t("sandboxes.made"), cell: (each) => <Time at={each.createdAt} /> },
              ]}
              actions={
                writes
                  ? (each) => (
                      <span className={styles.deeds}>
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
      </Loaded>
      <Pager page={page} pages={pages} onPage={(to) => set({ page: String(to) })} />
    </div>
  );
}
