import { useQuery } from "@tanstack/react-query";
import { ChartLine } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useAddress } from "@/shell/address";
import { may, useMe } from "@/shell/me";
import { Select, TextInput } from "@/ui/forms";
import { money } from "@/ui/money";
import { Page } from "@/ui/Page";
import { Empty, Loaded } from "@/ui/states";
import { amount, duration } from "@/ui/Time";
import { Breakdown } from "./Breakdown";
import { Chart } from "./Chart";
import {
  DIMENSIONS,
  type Dimension,
  fittingRange,
  intervalOf,
  MEASURES,
  type Measure,
  measured,
  momentsOf,
  type Numbers,
  RANGES,
  rangeOf,
  SCRIPT,
  type Series,
  type Span,
} from "./figures";
import styles from "./Usage.module.css";

/** What models were asked, and what it cost. The range, and what is looked at, are in the address. */
export default function Usage() {
  const { t, i18n } = useTranslation();
  const { get, set } = useAddress();
  const me = useMe().data;
  const custom = Boolean(get("since") || get("until"));
  const chosen = custom || RANGES.includes(get("range"));
  const month = useQuery({
    queryKey: ["usage", "month"],
    queryFn: ({ signal }) =>
      api.get<Schema<"UsageList">>("/v1/usage", { query: { by: "day", ...rangeOf("30", "", "", new Date()) }, signal }),
    enabled: !chosen,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const days = RANGES.includes(get("range")) ? get("range") : fittingRange(month.data?.items ?? [], new Date());
  const range = rangeOf(days, get("since"), get("until"), new Date());
  const measure = (MEASURES as string[]).includes(get("measure")) ? (get("measure") as Measure) : "tokens";
  const by = (DIMENSIONS as string[]).includes(get("by")) ? (get("by") as Dimension) : "model";
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
      api.get<Schema<"UsageList">>("/v1/usage", { query: { by: dimension, ...range, ...only }, signal }),
    refetchInterval: 30_000,
    placeholderData: (before: Schema<"UsageList"> | undefined) => before,
  });
  const whole = useQuery(ask("day"));
  const series = useQuery({
    queryKey: ["usage", "series", range, only],
    queryFn: ({ signal }) =>
      api.get<Series>("/v1/usage/series", {
        query: { interval: intervalOf(range), ...momentsOf(range, new Date()), ...only },
        signal,
      }),
    refetchInterval: 30_000,
    placeholderData: (before) => before,
  });
  const parts = useQuery(ask(by));
  const format = (value: number) => (measure === "cost" ? money(value, i18n.language) : amount(value, i18n.language));
  const dimensions = DIMENSIONS.filter((each) => each !== "tenant" || may(me, "admin"));
  const filters = Object.entries(only).filter(([, value]) => value);

  return (
    <Page title={t("usage.title")} about={t("usage.about")}>
      <search className={styles.filters}>
        <Select
          aria-label={t("usage.range")}
          value={custom ? "custom" : days}
          onChange={(value) =>
            value === "custom"
              ? set({ range: "", since: range.since, until: range.until })
              : set({ range: value, since: "", until: "" })
          }
          options={[
            ...RANGES.map((value) => ({ value, label: t("usage.lastDays", { count: Number(value) }) })),
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
          options={MEASURES.map((value) => ({ value, label: t(`usage.measures.${value}`) }))}
        />
        {filters.map(([name, value]) => (
          <button key={name} type="button" className={styles.chip} onClick={() => set({ [name]: "" })}>
            {t(`usage.dimensions.${name}`)}: <bdi>{value === SCRIPT ? t("usage.script") : value}</bdi> ×
            <span className="visually-hidden">{t("usage.unfilter")}</span>
          </button>
        ))}
      </search>
      <Loaded
        query={whole}
        isEmpty={({ total }) => total.requests === 0}
        empty={
          <Empty
            icon={ChartLine}
            title={t("usage.none")}
            action={<Link href="/settings/models">{t("usage.toModels")}</Link>}
          >
            {t("usage.noneAbout")}
          </Empty>
        }
      >
        {({ total }) => (
          <>
            <Totals total={total} />
            <Loaded query={series}>
              {(found) => (
                <Chart
                  label={t("usage.overTime", { what: t(`usage.measures.${measure}`) })}
                  times={found.items.map((each) => each.at)}
                  hourly={found.interval === "hour"}
                  lines={linesOf(found.items, measure, t)}
                  format={format}
                />
              )}
            </Loaded>
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
              <Loaded query={parts}>
                {(found) => (
                  <Breakdown
                    items={found.items}
                    by={by}
                    measure={measure}
                    total={measured(found.total, measure)}
                    onFilter={(value) => set({ [by]: value }, true)}
                  />
                )}
              </Loaded>
            </section>
            {series.data && <Latencies series={series.data} />}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function linesOf(items: Span[], measure: Measure, t: (key: string) => string) {
  if (measure !== "tokens")
    return [{ label: t(`usage.measures.${measure}`), values: items.map((each) => each[measure]) }];
  return [
    { label: t("usage.input"), values: items.map((each) => each.input) },
    { label: t("usage.output"), values: items.map((each) => each.output) },
  ];
}

/** How long answers took. Without an archive nobody knows. */
function Latencies({ series }: { series: Series }) {
  const { t } = useTranslation();
  if (!series.items.some((each) => each.latency)) return null;
  return (
    <section className={styles.section}>
      <h2>{t("usage.latency.title")}</h2>
      <Chart
        label={t("usage.latency.title")}
        times={series.items.map((each) => each.at)}
        hourly={series.interval === "hour"}
        lines={[
          { label: t("usage.latency.first"), values: series.items.map((each) => each.firstByte?.p50 ?? null) },
          { label: t("usage.latency.total"), values: series.items.map((each) => each.latency?.p50 ?? null) },
          { label: t("usage.latency.slow"), values: series.items.map((each) => each.latency?.p90 ?? null) },
        ]}
        format={duration}
      />
    </section>
  );
}

function Totals({ total }: { total: Numbers }) {
  const { t, i18n } = useTranslation();
  const number = (value: number) => amount(value, i18n.language);
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
      total.costKnown || total.cost > 0 ? money(total.cost, i18n.language) : t("usage.unknown"),
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
