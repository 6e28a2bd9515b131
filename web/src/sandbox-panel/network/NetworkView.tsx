import { useCallback, useState } from "react";
import { useTranslation } from "react-i18next";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Button } from "@/ui/controls/Button";
import { Select } from "@/ui/controls/forms";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { ConnectionRow } from "./ConnectionRow";
import { ConnectionTotalsList } from "./ConnectionTotalsList";
import { allowsTarget, connectionTarget } from "./connections";
import { NetworkPolicyDialog } from "./NetworkPolicyDialog";
import { NetworkPolicySummary } from "./NetworkPolicySummary";
import styles from "./network.module.css";
import { useAllowTarget } from "./useAllowTarget";
import {
  CONNECTIONS_PER_PAGE,
  type ConnectionFilter,
  MAX_CONNECTIONS,
  useConnections,
  useNetworkEvents,
  useNetworkPolicy,
} from "./useSandboxNetwork";

interface Props {
  sandbox: string;
  active: boolean;
  /** The sandbox has ended: its connections are still available, its policy is not. */
  ended?: boolean;
}

const FILTERS: readonly ConnectionFilter[] = ["all", "denied", "open"];

/** Network of a sandbox: its policy, totals by target, and its connections. */
export function NetworkView({ sandbox, active, ended = false }: Props) {
  const { t } = useTranslation();
  const me = useCurrentUser().data;
  const [filter, setFilter] = useState<ConnectionFilter>("all");
  const [limit, setLimit] = useState(CONNECTIONS_PER_PAGE);
  const [editing, setEditing] = useState(false);
  const policy = useNetworkPolicy(sandbox, active && !ended);
  const connections = useConnections(sandbox, filter, limit, active);
  const stream = useNetworkEvents(sandbox, active && !ended);
  const mayChange = !ended && hasScope(me, "sandboxes:write");
  const totals = connections.data?.totals ?? [];
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
    <section className={styles.view} tabIndex={0} aria-label={t("network.title")}>
      <div className={styles.columns}>
        <div className={styles.side}>
          {!ended && (
            <QueryResult query={policy} rows={2}>
              {(network) => (
                <NetworkPolicySummary network={network} onChange={mayChange ? () => setEditing(true) : undefined} />
              )}
            </QueryResult>
          )}
          {totals.length > 0 && <ConnectionTotalsList totals={totals} />}
        </div>
        <section className={styles.main} aria-labelledby="network-connections">
          <div className={styles.head}>
            <h2 id="network-connections">{t("network.connections")}</h2>
            {!ended && stream === "lost" && <span className={styles.lost}>{t("network.lost")}</span>}
            <Select
              aria-label={t("network.filter")}
              value={filter}
              onChange={(next) => {
                setFilter(next as ConnectionFilter);
                setLimit(CONNECTIONS_PER_PAGE);
              }}
              options={FILTERS.map((value) => ({ value, label: t(`network.filters.${value}`) }))}
            />
          </div>
          <QueryResult
            query={connections}
            isEmpty={(page) => page.items.length === 0}
            empty={
              filter === "all" ? (
                <NoConnections
                  policy={ended ? null : (policy.data?.policy ?? null)}
                  onChange={mayChange ? () => setEditing(true) : null}
                />
              ) : (
                <EmptyState
                  title={t("network.noMatch")}
                  action={<Button onClick={() => setFilter("all")}>{t("network.showAll")}</Button>}
                />
              )
            }
          >
            {(page) => (
              <ConnectionList
                sandbox={sandbox}
                page={page}
                policy={policy.data?.policy ?? []}
                mayChange={mayChange}
                limit={limit}
                onLimit={setLimit}
              />
            )}
          </QueryResult>
        </section>
      </div>
      {editing && policy.data && (
        <NetworkPolicyDialog sandbox={sandbox} policy={policy.data.policy} onClose={() => setEditing(false)} />
      )}
    </section>
  );
}

function NoConnections({ policy, onChange }: { policy: readonly string[] | null; onChange: (() => void) | null }) {
  const { t } = useTranslation();
  return (
    <EmptyState
      title={t("network.none")}
      action={policy?.length === 0 && onChange && <Button onClick={onChange}>{t("network.changeTitle")}</Button>}
    >
      {policy && <TextWithCode text={t(policy.length ? "network.noneHint" : "network.noneDenied")} />}
    </EmptyState>
  );
}

interface ConnectionListProps {
  sandbox: string;
  page: Schema<"ConnectionListResponse">;
  policy: readonly string[];
  mayChange: boolean;
  limit: number;
  onLimit: (limit: number) => void;
}

function ConnectionList({ sandbox, page, policy, mayChange, limit, onLimit }: ConnectionListProps) {
  const { t } = useTranslation();
  const { mutate, isPending, variables } = useAllowTarget(sandbox, policy);
  const allow = useCallback((target: string) => mutate(target), [mutate]);
  return (
    <>
      <ol className={styles.connections} reversed>
        {page.items.map((connection) => {
          const target = connectionTarget(connection);
          return (
            <ConnectionRow
              key={connection.id}
              connection={connection}
              isAllowedNow={allowsTarget(policy, target)}
              busy={isPending && variables === target}
              onAllow={mayChange ? allow : null}
            />
          );
        })}
      </ol>
      {page.next && limit < MAX_CONNECTIONS && (
        <Button size="small" onClick={() => onLimit(limit + CONNECTIONS_PER_PAGE)}>
          {t("network.more", { count: CONNECTIONS_PER_PAGE })}
        </Button>
      )}
      {page.next && limit >= MAX_CONNECTIONS && (
        <p className={styles.soft}>
          <TextWithCode text={t("network.onlyLatest", { count: MAX_CONNECTIONS, sandbox })} />
        </p>
      )}
    </>
  );
}
