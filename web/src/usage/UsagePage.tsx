import { useQuery } from "@tanstack/react-query";
import { ChartLine } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { useUrlQuery } from "@/shell/navigation/useUrlQuery";
import { Select, TextInput } from "@/ui/controls/forms";
import { formatAmount, formatDuration } from "@/ui/format/formats";
import { formatMoney } from "@/ui/format/money";
import { Page } from "@/ui/layout/Page";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { LineChart } from "./LineChart";
import { UsageBreakdown } from "./UsageBreakdown";
import styles from "./UsagePage.module.css";
import {
  chartInterval,
  dateRangeFromUrl,
  dateRangeTimestamps,
  RANGE_DAYS,
  SCRIPT_MODEL,
  shortestRangeWithUsage,
  USAGE_DIMENSIONS,
  USAGE_MEASURES,
  type UsageDimension,
  type UsageInterval,
  type UsageMeasure,
  type UsageNumbers,
  type UsageSeries,
  usageMeasureValue,
} from "./usage-figures";

/** Model usage and cost. Range and grouping are in the URL. */
export default function UsagePage() {
  const { t, i18n } = useTranslation();
  const { get, set } = useUrlQuery();
  const me = useCurrentUser().data;
  const custom = Boolean(get("since") || get("until"));
  const chosen = custom || RANGE_DAYS.includes(get("range"));
  const month = useQuery({
    queryKey: ["usage", "month"],
    queryFn: ({ signal }) =>
      api.get<Schema<"UsageResponse">>("/v1/usage", {
        query: { by: "day", ...dateRangeFromUrl("30", "", "", new Date()) },
        signal,
      }),
    enabled: !chosen,
    staleTime: Number.POSITIVE_INFINITY,
  });
  // The shortest range with requests is only known then.
  const isRangeKnown = chosen || !month.isLoading;
  const days = RANGE_DAYS.includes(get("range"))
    ? get("range")
    : shortestRangeWithUsage(month.data?.items ?? [], new Date());
  const range = dateRangeFromUrl(days, get("since"), get("until"), new Date());
  const measure = (USAGE_MEASURES as string[]).includes(get("measure")) ? (get("measure") as UsageMeasure) : "tokens";
  const by = (USAGE_DIMENSIONS as string[]).includes(get("by")) ? (get("by") as UsageDimension) : "model";
  const only = {
    model: get("model"),
    provider: get("provider"),
    key: get("key"),
    sandbox: get("sandbox"),
    tenant: get("tenant"),
  };
  const ask = (dimension: string) => ({
    queryKey: ["usage", dimension, range, only],
    queryFn: ({ signal }: { signal: AbortSignal }) =>
      api.get<Schema<"UsageResponse">>("/v1/usage", { query: { by: dimension, ...range, ...only }, signal }),
    enabled: isRangeKnown,
    refetchInterval: 30_000,
    placeholderData: (before: Schema<"UsageResponse"> | undefined) => before,
  });
  const daily = useQuery(ask("day"));
  const series = useQuery({
    queryKey: ["usage", "series", range, only],
    queryFn: ({ signal }) =>
      api.get<UsageSeries>("/v1/usage/series", {
        query: { interval: chartInterval(range), ...dateRangeTimestamps(range, new Date()), ...only },
        signal,
      }),
    enabled: isRangeKnown,
    refetchInterval: 30_000,
    placeholderData: (before) => before,
  });
  const parts = useQuery(ask(by));
  const format = (value: number) =>
    measure === "cost" ? formatMoney(value, i18n.language) : formatAmount(value, i18n.language);
  const dimensions = USAGE_DIMENSIONS.filter((each) => each !== "tenant" || hasScope(me, "admin"));
  const filters = Object.entries(only).filter(([, value]) => value);

  return (
    <Page title={t("usage.title")} about={t("usage.about")}>
      <search className={styles.filters}>
        <Select
          aria-label={t("usage.range")}
          value={custom ? "custom" : isRangeKnown ? days : ""}
          disabled={!isRangeKnown}
          onChange={(value) =>
            value === "custom"
              ? set({ range: "", since: range.since, until: range.until })
              : set({ range: value, since: "", until: "" })
          }
          options={[
            ...(isRangeKnown ? [] : [{ value: "", label: t("usage.range") }]),
            ...RANGE_DAYS.map((value) => ({ value, label: t("usage.lastDays", { count: Number(value) }) })),
            { value: "custom", label: t("usage.custom") },
          ]}
        />
        {custom && (
          <>
            <TextInput
              type="date"
              aria-label={t("usage.since")}
              value={range.since}
              max={range.until}
              onChange={(event) => set({ since: event.target.value })}
            />
            <TextInput
              type="date"
              aria-label={t("usage.until")}
              value={range.until}
              min={range.since}
              onChange={(event) => set({ until: event.target.value })}
            />
          </>
        )}
        <Select
          aria-label={t("usage.measure")}
          value={measure}
          onChange={(value) => set({ measure: value === "tokens" ? "" : value })}
          options={USAGE_MEASURES.map((value) => ({ value, label: t(`usage.measures.${value}`) }))}
        />
        {filters.map(([name, value]) => (
          <button key={name} type="button" className={styles.chip} onClick={() => set({ [name]: "" })}>
            {t(`usage.dimensions.${name}`)}: <bdi>{value === SCRIPT_MODEL ? t("usage.script") : value}</bdi> ×
            <span className="visually-hidden">{t("usage.unfilter")}</span>
          </button>
        ))}
      </search>
      <QueryResult
        query={daily}
        isEmpty={({ total }) => total.requests === 0}
        empty={
          <EmptyState
            icon={ChartLine}
            title={t("usage.none")}
            action={<Link href="/settings/models">{t("usage.toModels")}</Link>}
          >
            {t("usage.noneAbout")}
          </EmptyState>
        }
      >
        {({ total }) => (
          <>
            <UsageTotals total={total} />
            <QueryResult query={series}>
              {(found) => (
                <LineChart
                  label={t("usage.overTime", { what: t(`usage.measures.${measure}`) })}
                  times={found.items.map((each) => each.at)}
                  hourly={found.interval === "hour"}
                  lines={chartLines(found.items, measure, t)}
                  format={format}
                />
              )}
            </QueryResult>
            <section className={styles.section}>
              <div className={styles.sectionHead}>
                <h2>{t("usage.breakdown")}</h2>
                <Select
                  aria-label={t("usage.by")}
                  value={by}
                  onChange={(value) => set({ by: value === "model" ? "" : value })}
                  options={dimensions.map((value) => ({ value, label: t(`usage.dimensions.${value}`) }))}
                />
              </div>
              <QueryResult query={parts}>
                {(found) => (
                  <UsageBreakdown
                    items={found.items}
                    by={by}
                    measure={measure}
                    total={usageMeasureValue(found.total, measure)}
                    onFilter={(value) => set({ [by]: value }, true)}
                  />
                )}
              </QueryResult>
            </section>
            {series.data && <LatencyChart series={series.data} />}
          </>
        )}
      </QueryResult>
    </Page>
  );
}

function chartLines(items: UsageInterval[], measure: UsageMeasure, t: (key: string) => string) {
  if (measure !== "tokens")
    return [{ label: t(`usage.measures.${measure}`), values: items.map((each) => each[measure]) }];
  return [
    { label: t("usage.input"), values: items.map((each) => each.input) },
    { label: t("usage.output"), values: items.map((each) => each.output) },
  ];
}

/** Response times; they need the archive. */
function LatencyChart({ series }: { series: UsageSeries }) {
  const { t } = useTranslation();
  if (!series.items.some((each) => each.latency)) return null;
  return (
    <section className={styles.section}>
      <h2>{t("usage.latency.title")}</h2>
      <LineChart
        label={t("usage.latency.title")}
        times={series.items.map((each) => each.at)}
        hourly={series.interval === "hour"}
        lines={[
          { label: t("usage.latency.first"), values: series.items.map((each) => each.firstByte?.p50 ?? null) },
          { label: t("usage.latency.total"), values: series.items.map((each) => each.latency?.p50 ?? null) },
          { label: t("usage.latency.slow"), values: series.items.map((each) => each.latency?.p90 ?? null) },
        ]}
        format={formatDuration}
      />
    </section>
  );
}

function UsageTotals({ total }: { total: UsageNumbers }) {
  const { t, i18n } = useTranslation();
  const number = (value: number) => formatAmount(value, i18n.language);
  const figures: [string, string, string?][] = [
    [t("usage.measures.requests"), number(total.requests)],
    [
      t("usage.input"),
      number(total.input),
      total.cacheRead ? t("usage.cached", { count: total.cacheRead, value: number(total.cacheRead) }) : undefined,
    ],
    [
      t("usage.output"),
      number(total.output),
      total.reasoning ? t("usage.thought", { value: number(total.reasoning) }) : undefined,
    ],
    [
      t("usage.measures.cost"),
      total.costKnown || total.cost > 0 ? formatMoney(total.cost, i18n.language) : t("usage.unknown"),
      total.costKnown ? undefined : t("usage.unpriced", { count: total.unpriced }),
    ],
    [
      t("usage.measures.errors"),
      number(total.errors),
      total.refused ? t("usage.refused", { value: number(total.refused) }) : undefined,
    ],
  ];
  return (
    <dl className={styles.totals}>
      {figures.map(([label, value, note]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
          {note && <dd className={styles.note}>{note}</dd>}
        </div>
      ))}
    </dl>
  );
}
