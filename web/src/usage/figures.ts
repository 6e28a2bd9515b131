/** What the pages of usage work out from what the server counted. */

import type { Schema } from "@/api/types";

export type Item = Schema<"UsageItem">;
export type Numbers = Schema<"UsageNumbers">;
export type Dimension = "model" | "provider" | "key" | "sandbox" | "tenant";
export type Measure = "tokens" | "cost" | "requests" | "errors";
export const DIMENSIONS: Dimension[] = ["model", "provider", "key", "sandbox", "tenant"];
export const MEASURES: Measure[] = ["tokens", "cost", "requests", "errors"];
/** Days that a range may have, counted with today. */
export const RANGES = ["1", "7", "30", "90"];

const USUAL = "30";

/** What the server calls the model and the provider where a run's own script answered. */
export const SCRIPT = "script of a run";

export interface Percentiles {
  p50: number;
  p90: number;
  p99: number;
}

/** What was used in one span of time, an hour or a day. */
export interface Span {
  at: string;
  requests: number;
  errors: number;
  refused: number;
  input: number;
  output: number;
  cost: number;
  /** Seconds until answers ended, and until they began; absent if there were none. */
  latency?: Percentiles;
  firstByte?: Percentiles;
}

export interface Series {
  interval: "hour" | "day";
  /** Whether exchanges are kept: without them nobody knows how long they took. */
  archived: boolean;
  items: Span[];
}

const DAY = 86_400_000;

/** A day as the server counts it, in UTC. */
export function dayOf(at: Date): string {
  return at.toISOString().slice(0, 10);
}

export interface Range {
  since: string;
  until: string;
}

/** The range that an address asks for: some days up to today, or from one day to another. */
export function rangeOf(range: string, since: string, until: string, now: Date): Range {
  const today = dayOf(now);
  if (isDay(since) || isDay(until)) {
    const last = isDay(until) ? until : today;
    const first = isDay(since) ? since : dayOf(new Date(Date.parse(last) - 29 * DAY));
    return first <= last ? { since: first, until: last } : { since: last, until: first };
  }
  const days = RANGES.includes(range) ? Number(range) : 30;
  return { since: dayOf(new Date(now.getTime() - (days - 1) * DAY)), until: today };
}

/** The shortest range that shows all days with requests; the longest of a month where there are none. */
export function fittingRange(items: Pick<Item, "day" | "requests">[], now: Date): string {
  const days = items.filter((each) => each.requests > 0 && each.day).map((each) => String(each.day));
  if (days.length === 0) return USUAL;
  const first = days.reduce((one, other) => (one < other ? one : other));
  const span = Math.round((Date.parse(dayOf(now)) - Date.parse(first)) / DAY) + 1;
  return RANGES.find((each) => Number(each) >= span) ?? USUAL;
}

/** How a range is cut: up to two days by the hour. */
export function intervalOf({ since, until }: Range): "hour" | "day" {
  return Date.parse(until) - Date.parse(since) <= DAY ? "hour" : "day";
}

/** A range from its first moment to its last, which is not after the hour that it is now. */
export function momentsOf({ since, until }: Range, now: Date): Range {
  const end = until === dayOf(now) ? `${now.toISOString().slice(0, 13)}:59:59Z` : `${until}T23:59:59Z`;
  return { since: `${since}T00:00:00Z`, until: end };
}

export function isDay(text: string): boolean {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text));
}

export function measured(numbers: Numbers, measure: Measure): number {
  return measure === "tokens" ? numbers.input + numbers.output : numbers[measure];
}

/** The largest first. */
export function ranked(items: Item[], measure: Measure): Item[] {
  return [...items].sort(
    (one, other) => measured(other, measure) - measured(one, measure) || other.requests - one.requests,
  );
}
