import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { may, useMe } from "@/shell/me";
import { money } from "@/ui/money";
import { Table } from "@/ui/Table";
import { amount } from "@/ui/Time";
import { type Dimension, type Item, type Measure, measured, ranked, SCRIPT } from "./figures";
import styles from "./Usage.module.css";

const MOST = 100;

interface Props {
  items: Item[];
  by: Dimension;
  measure: Measure;
  total: number;
  onFilter: (value: string) => void;
}

/** Who or what used how much, the most first. */
export function Breakdown({ items, by, measure, total, onFilter }: Props) {
  const { t, i18n } = useTranslation();
  const me = useMe().data;
  const keys = useQuery({
    queryKey: ["usage", "keys"],
    queryFn: ({ signal }) => api.get<Schema<"KeyList">>("/v1/keys", { signal }),
    enabled: by === "key" && may(me, "keys:admin"),
    staleTime: 60_000,
  }).data;
  const nameOf = (item: Item) => {
    const value = item[by];
    if (!value) return null;
    if (value === SCRIPT) return t("usage.script");
    return (by === "key" && keys?.items.find((key) => key.id === value)?.name) || value;
  };
  const number = (value: number) => amount(value, i18n.language);
  const rows = ranked(items, measure).slice(0, MOST);
  return (
    <>
      <Table<Item>
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
              const share = total > 0 ? measured(item, measure) / total : 0;
              return (
                <span className={styles.share}>
                  <span className={styles.bar} aria-hidden>
                    <span style={{ width: `${Math.max(share * 100, share > 0 ? 1 : 0)}%` }} />
                  </span>
                  {Math.round(share * 100)} %
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
                  ? `${item.costKnown ? "" : "≥ "}${money(item.cost, i18n.language)}`
                  : t("usage.unknown")}
              </span>
            ),
          },
        ]}
      />
      {items.length > MOST && <p className={styles.note}>{t("usage.more", { count: items.length - MOST })}</p>}
    </>
  );
}
