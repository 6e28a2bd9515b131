import { describe, expect, it } from "vitest";
import { formatMoney } from "@/ui/format/money";
import {
  chartInterval,
  dateRangeFromUrl,
  dateRangeTimestamps,
  rankUsageByMeasure,
  shortestRangeWithUsage,
  type UsageRow,
} from "./usage-figures";

const NONE = {
  requests: 0,
  errors: 0,
  refused: 0,
  input: 0,
  output: 0,
  cacheRead: 0,
  cacheWrite: 0,
  reasoning: 0,
  cost: 0,
  costKnown: true,
  unpriced: 0,
  estimated: 0,
};
const item = (more: Partial<UsageRow>): UsageRow => ({ ...NONE, ...more });
const now = new Date("2026-03-10T23:30:00Z");

describe("ranges", () => {
  it("end today, unless days are named", () => {
    expect(dateRangeFromUrl("7", "", "", now)).toEqual({ since: "2026-03-04", until: "2026-03-10" });
    expect(dateRangeFromUrl("nonsense", "", "", now)).toEqual({ since: "2026-02-09", until: "2026-03-10" });
    expect(dateRangeFromUrl("7", "2026-01-01", "2026-01-31", now)).toEqual({
      since: "2026-01-01",
      until: "2026-01-31",
    });
  });
  it("are swapped when reversed, and invalid dates are ignored", () => {
    expect(dateRangeFromUrl("", "2026-02-02", "2026-02-01", now)).toEqual({ since: "2026-02-01", until: "2026-02-02" });
    expect(dateRangeFromUrl("7", "2026-99-99", "", now)).toEqual({ since: "2026-03-04", until: "2026-03-10" });
  });
  it("have hourly intervals if short", () => {
    expect(chartInterval(dateRangeFromUrl("1", "", "", now))).toBe("hour");
    expect(chartInterval(dateRangeFromUrl("7", "", "", now))).toBe("day");
    expect(
      dateRangeTimestamps(
        dateRangeFromUrl("1", "", "", new Date("2026-03-10T04:30:00Z")),
        new Date("2026-03-10T04:30:00Z"),
      ),
    ).toEqual({
      since: "2026-03-10T00:00:00Z",
      until: "2026-03-10T04:59:59Z",
    });
    expect(dateRangeTimestamps({ since: "2026-03-01", until: "2026-03-02" }, now)).toEqual({
      since: "2026-03-01T00:00:00Z",
      until: "2026-03-02T23:59:59Z",
    });
  });
});

describe("the first range", () => {
  it("is the shortest that shows all usage", () => {
    const on = (day: string) => item({ day, requests: 1 });
    expect(shortestRangeWithUsage([on("2026-03-10")], now)).toBe("1");
    expect(shortestRangeWithUsage([on("2026-03-10"), on("2026-03-05")], now)).toBe("7");
    expect(shortestRangeWithUsage([on("2026-02-20")], now)).toBe("30");
    expect(shortestRangeWithUsage([item({ day: "2026-02-20", requests: 0 }), on("2026-03-10")], now)).toBe("1");
    expect(shortestRangeWithUsage([], now)).toBe("30");
  });
});

describe("figures", () => {
  it("are ranked by the chosen metric", () => {
    const items = [item({ model: "a", cost: 1, requests: 9 }), item({ model: "b", cost: 2, requests: 1 })];
    expect(rankUsageByMeasure(items, "cost")[0]?.model).toBe("b");
    expect(rankUsageByMeasure(items, "requests")[0]?.model).toBe("a");
  });
  it("show small amounts of money", () => {
    expect(formatMoney(0.0031, "en")).toBe("$0.0031");
    expect(formatMoney(12.345, "en")).toBe("$12.35");
    expect(formatMoney(0, "en")).toBe("$0.00");
  });
});
