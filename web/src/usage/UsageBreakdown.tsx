import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { formatCount } from "@/ui/format/formats";
import { formatMoney } from "@/ui/format/money";
import { Table } from "@/ui/layout/Table";
import styles from "./UsagePage.module.css";
import {
  rankUsageByMeasure,
  SCRIPT_MODEL,
  type UsageDimension,
  type UsageMeasure,
  type UsageRow,
  usageMeasureValue,
} from "./usage-figures";

const MAX_ROWS = 100;

interface Props {
  items: UsageRow[];
  by: UsageDimension;
  measure: UsageMeasure;
  total: number;
  onFilter: (value: string) => void;
}

/** Usage by model, key or another dimension, largest first. */
export function UsageBreakdown({ items, by, measure, total, onFilter }: Props) {
  const { t, i18n } = useTranslation();
  const me = useCurrentUser().data;
  const keys = useQuery({
    queryKey: ["usage", "keys"],
    queryFn: ({ signal }) => api.get<Schema<"KeyListResponse">>("/v1/keys", { signal }),
    enabled: by === "key" && hasScope(me, "keys:admin"),
    staleTime: 60_000,
  }).data;
  const nameOf = (item: UsageRow) => {
    const value = item[by];
    if (!value) return null;
    if (value === SCRIPT_MODEL) return t("usage.script");
    return (by === "key" && keys?.items.find((key) => key.id === value)?.name) || value;
  };
  const number = (value: number) => formatCount(value, i18n.language);
  const rows = rankUsageByMeasure(items, measure).slice(0, MAX_ROWS);
  return (
    <>
      <Table<UsageRow>
        label={t("usage.breakdown")}
        rows={rows}
        keyOf={(item) => item[by] ?? ""}
        columns={[
          {
            id: "name",
            label: t(`usage.dimensions.${by}`),
            cell: (item) => {
              const name = nameOf(item);
              if (name === null) return <span className={styles.note}>{t("usage.unknown")}</span>;
              if (by === "sandbox")
                return (
                  <Link href={`/archive/sandboxes/${encodeURIComponent(name)}`} className={styles.id}>
                    {name}
                  </Link>
                );
              return (
                <button type="button" className={styles.name} onClick={() => onFilter(item[by] ?? "")}>
                  <bdi>{name}</bdi>
                </button>
              );
            },
          },
          {
            id: "share",
            label: t(`usage.measures.${measure}`),
            minor: true,
            cell: (item) => {
              const share = total > 0 ? usageMeasureValue(item, measure) / total : 0;
              return (
                <span className={styles.share}>
                  <span className={styles.bar} aria-hidden>
                    <span style={{ width: `${Math.max(share * 100, share > 0 ? 1 : 0)}%` }} />
                  </span>
                  {Math.round(share * 100)}%
                </span>
              );
            },
          },
          { id: "requests", label: t("usage.measures.requests"), numeric: true, cell: (item) => number(item.requests) },
          { id: "input", label: t("usage.input"), numeric: true, minor: true, cell: (item) => number(item.input) },
          { id: "output", label: t("usage.output"), numeric: true, minor: true, cell: (item) => number(item.output) },
          {
            id: "errors",
            label: t("usage.measures.errors"),
            numeric: true,
            minor: true,
            cell: (item) => number(item.errors),
          },
          {
            id: "cost",
            label: t("usage.measures.cost"),
            numeric: true,
            cell: (item) => (
              <span title={item.costKnown ? undefined : t("usage.unpriced", { count: item.unpriced })}>
                {item.costKnown || item.cost > 0
                  ? `${item.costKnown ? "" : "≥ "}${formatMoney(item.cost, i18n.language)}`
                  : t("usage.unknown")}
              </span>
            ),
          },
        ]}
      />
      {items.length > MAX_ROWS && <p className={styles.note}>{t("usage.more", { count: items.length - MAX_ROWS })}</p>}
    </>
  );
}
