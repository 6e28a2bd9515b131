import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Layers, Pencil, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { CopyButton } from "@/ui/content/CodeBlock";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { IconButton } from "@/ui/controls/Button";
import { runWithUndo, showErrorToast } from "@/ui/controls/toasts";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { Table } from "@/ui/layout/Table";
import { isRecord, type McpSet } from "./api";
import styles from "./mcp.module.css";
import { SetDialog } from "./SetDialog";

/** Sets of tools of several servers. */
export function SetList({ writes }: { writes: boolean }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const [edited, setEdited] = useState<McpSet | null>(null);
  const [hidden, setHidden] = useState<string | null>(null);
  const query = useQuery({
    queryKey: ["mcp", "sets"],
    queryFn: ({ signal }) => api.get<Schema<"McpSetListResponse">>("/v1/mcp/sets", { signal }),
  });
  const removal = useMutation({
    mutationFn: (name: string) => api.delete(`/v1/mcp/sets/${encodeURIComponent(name)}`),
    onError: showErrorToast,
    onSettled: () => queries.invalidateQueries({ queryKey: ["mcp", "sets"] }),
  });
  const remove = (set: McpSet) =>
    runWithUndo(t("mcp.sets.removed", { name: set.name }), t("common.undo"), () => removal.mutateAsync(set.name), {
      hide: () => setHidden(set.name),
      show: () => setHidden(null),
    });
  return (
    <>
      <p className={styles.soft}>{t("mcp.sets.about")}</p>
      <QueryResult query={query}>
        {({ items }) => {
          const rows = items.filter((each) => each.name !== hidden);
          if (rows.length === 0)
            return (
              <EmptyState icon={Layers} title={t("mcp.sets.none")}>
                {t("mcp.sets.noneAbout")}
              </EmptyState>
            );
          return (
            <Table<McpSet>
              label={t("mcp.tabs.sets")}
              rows={rows}
              keyOf={(each) => each.name}
              columns={[
                {
                  id: "name",
                  label: t("mcp.server.name"),
                  cell: (each) => (
                    <span className={styles.nameCell}>
                      <span className={styles.name}>{each.name}</span>
                      {each.description && <bdi className={styles.under}>{each.description}</bdi>}
                    </span>
                  ),
                },
                {
                  id: "servers",
                  label: t("mcp.sets.servers"),
                  cell: (each) => (
                    <span className={styles.row}>
                      {setServerNames(each).map((name) => (
                        <Link key={name} href={`/tools/${encodeURIComponent(name)}`}>
                          {name}
                        </Link>
                      ))}
                    </span>
                  ),
                },
                {
                  id: "address",
                  label: t("mcp.server.address"),
                  minor: true,
                  cell: (each) => (
                    <span className={styles.row}>
                      <code>/mcp/sets/{each.name}</code>
                      <CopyButton text={`${window.location.origin}/mcp/sets/${each.name}`} />
                    </span>
                  ),
                },
                {
                  id: "origin",
                  label: t("mcp.server.origin"),
                  minor: true,
                  cell: (each) => (
                    <span>
                      {each.source === "file" ? <TextWithCode text={t("mcp.sets.ofFile")} /> : t("mcp.server.ofApi")}
                    </span>
                  ),
                },
              ]}
              actions={
                writes
                  ? (each) =>
                      each.source === "tenant" && (
                        <span className={styles.actions}>
                          <IconButton
                            size="small"
                            icon={Pencil}
                            label={t("mcp.sets.edit", { name: each.name })}
                            onClick={() => setEdited(each)}
                          />
                          <IconButton
                            size="small"
                            icon={Trash2}
                            label={t("mcp.sets.remove", { name: each.name })}
                            onClick={() => remove(each)}
                          />
                        </span>
                      )
                  : undefined
              }
            />
          );
        }}
      </QueryResult>
      {edited && <SetDialog set={edited} onClose={() => setEdited(null)} />}
    </>
  );
}

export function setServerNames(set: McpSet): string[] {
  return isRecord(set.declaration.servers) ? Object.keys(set.declaration.servers) : [];
}
