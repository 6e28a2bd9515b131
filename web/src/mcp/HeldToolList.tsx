import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Check, ShieldCheck } from "lucide-react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { DiffView } from "@/ui/content/Diff";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { showErrorToast, showToast } from "@/ui/controls/toasts";
import { RelativeTime } from "@/ui/format/formats";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { type HeldTool, type McpServer, serverPath } from "./api";
import { heldToolText } from "./held-tool-text";
import styles from "./mcp.module.css";

/** Tools that are held because they differ from their approved version. */
export function HeldToolList({ server }: { server: McpServer }) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const writes = hasScope(useCurrentUser().data, "mcp:write");
  const query = useQuery({
    queryKey: ["mcp", "changes", server.name],
    queryFn: ({ signal }) => api.get<Schema<"HeldToolListResponse">>(`${serverPath(server.name)}/changes`, { signal }),
    refetchInterval: 10_000,
  });
  const approval = useMutation({
    mutationFn: (digests: string[]) =>
      api.post<Schema<"ApproveToolsResponse">>(`${serverPath(server.name)}/changes/approve`, { digests }),
    onSuccess: ({ approved }) => showToast(t("mcp.held.approved", { names: approved.join(", ") }), { tone: "good" }),
    onError: showErrorToast,
    onSettled: () => queries.invalidateQueries({ queryKey: ["mcp"] }),
  });
  return (
    <QueryResult query={query}>
      {({ items }) =>
        items.length === 0 ? (
          <EmptyState icon={ShieldCheck} title={t("mcp.held.none")}>
            {t("mcp.held.noneAbout")}
          </EmptyState>
        ) : (
          <>
            <div className={styles.head}>
              <p className={styles.soft}>{t("mcp.held.about")}</p>
              {writes && items.length > 1 && (
                <Button
                  icon={Check}
                  busy={approval.isPending}
                  onClick={() => approval.mutate(items.map((item) => item.digest))}
                >
                  {t("mcp.held.approveAll", { count: items.length })}
                </Button>
              )}
            </div>
            {items.map((item) => (
              <HeldToolCard
                key={item.digest}
                item={item}
                busy={approval.isPending}
                onApprove={writes ? () => approval.mutate([item.digest]) : null}
              />
            ))}
            {!writes && <p className={styles.soft}>{t("mcp.held.cannot")}</p>}
          </>
        )
      }
    </QueryResult>
  );
}

function HeldToolCard({ item, busy, onApprove }: { item: HeldTool; busy: boolean; onApprove: (() => void) | null }) {
  const { t } = useTranslation();
  return (
    <article className={styles.held} aria-label={item.tool}>
      <header className={styles.head}>
        <span className={styles.row}>
          <code className={styles.toolName}>{item.tool}</code>
          <Badge tone="warning">{t(item.approved ? "mcp.held.changed" : "mcp.held.new")}</Badge>
          <span className={styles.soft}>
            <RelativeTime at={item.seenAt} />
          </span>
        </span>
        {onApprove && (
          <Button
            tone="accent"
            icon={Check}
            busy={busy}
            onClick={onApprove}
            aria-label={t("mcp.held.approveNamed", { name: item.tool })}
          >
            {t("mcp.held.approve")}
          </Button>
        )}
      </header>
      {/* Side by side with what was approved, each field as text of its own. */}
      <DiffView
        before={item.approved ? heldToolText(item.approved) : null}
        after={heldToolText(item.offered)}
        label={t(item.approved ? "mcp.held.difference" : "mcp.held.offered")}
      />
    </article>
  );
}
