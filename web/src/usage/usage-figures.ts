/** Computations on usage data. */

import type { Schema } from "@/api/types";

export type UsageRow = Schema<"UsageRowResponse">;
export type UsageNumbers = Schema<"UsageTotals">;
export type UsageDimension = "model" | "provider" | "key" | "sandbox" | "tenant";
export type UsageMeasure = "tokens" | "cost" | "requests" | "errors";
export const USAGE_DIMENSIONS: UsageDimension[] = ["model", "provider", "key", "sandbox", "tenant"];
export const USAGE_MEASURES: UsageMeasure[] = ["tokens", "cost", "requests", "errors"];
/** Days of a range, including today. */
export const RANGE_DAYS = ["1", "7", "30", "90"];

const DEFAULT_RANGE = "30";

/** Model and provider name of runs with their own script. */
export const SCRIPT_MODEL = "script of a run";

export interface Percentiles {
  p50: number;
  p90: number;
  p99: number;
}

/** Usage in one hour or day. */
export interface UsageInterval {
  at: string;
  requests: number;
  errors: number;
  refused: number;
  input: number;
  output: number;
  cost: number;
  /** Seconds until responses ended, and until they started; missing if there were none. */
  latency?: Percentiles;
  firstByte?: Percentiles;
}

export interface UsageSeries {
  interval: "hour" | "day";
  /** Whether exchanges are recorded; response times need it. */
  archived: boolean;
  items: UsageInterval[];
}

const DAY = 86_400_000;

/** Day in UTC, as the server counts it. */
export function utcDay(at: Date): string {
  return at.toISOString().slice(0, 10);
}

export interface DateRange {
  since: string;
  until: string;
}

/** Range from the URL: a number of days up to today, or two dates. */
export function dateRangeFromUrl(range: string, since: string, until: string, now: Date): DateRange {
  const today = utcDay(now);
  if (isDateString(since) || isDateString(until)) {
    const last = isDateString(until) ? until : today;
    const first = isDateString(since) ? since : utcDay(new Date(Date.parse(last) - 29 * DAY));
    return first <= last ? { since: first, until: last } : { since: last, until: first };
  }
  const days = RANGE_DAYS.includes(range) ? Number(range) : 30;
  return { since: utcDay(new Date(now.getTime() - (days - 1) * DAY)), until: today };
}

/** The shortest range that contains all days with requests; 30 days if there are none. */
export function shortestRangeWithUsage(items: Pick<UsageRow, "day" | "requests">[], now: Date): string {
  const days = items.filter((each) => each.requests > 0 && each.day).map((each) => String(each.day));
  if (days.length === 0) return DEFAULT_RANGE;
  const first = days.reduce((one, other) => (one < other ? one : other));
  const span = Math.round((Date.parse(utcDay(now)) - Date.parse(first)) / DAY) + 1;
  return RANGE_DAYS.find((each) => Number(each) >= span) ?? DEFAULT_RANGE;
}

/** Interval of a range: up to two days by the hour. */
export function chartInterval({ since, until }: DateRange): "hour" | "day" {
  return Date.parse(until) - Date.parse(since) <= DAY ? "hour" : "day";
}

/** First and last moment of a range, at most the current hour. */
export function dateRangeTimestamps({ since, until }: DateRange, now: Date): DateRange {
  const end = until === utcDay(now) ? `${now.toISOString().slice(0, 13)}:59:59Z` : `${until}T23:59:59Z`;
  return { since: `${since}T00:00:00Z`, until: end };
}

export function isDateString(text: string): boolean {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text));
}

export function usageMeasureValue(totals: UsageNumbers, measure: UsageMeasure): number {
  return measure === "tokens" ? totals.input + totals.output : totals[measure];
}

/** Sorted, largest first. */
export function rankUsageByMeasure(items: UsageRow[], measure: UsageMeasure): UsageRow[] {
  return [...items].sort(
    (one, other) =>
      usageMeasureValue(other, measure) - usageMeasureValue(one, measure) || other.requests - one.requests,
  );
}
