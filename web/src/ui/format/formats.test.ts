import { afterEach, describe, expect, it } from "vitest";
import { chooseLanguage } from "@/i18n";
import { formatCount, formatDuration, formatRelativeTime } from "./formats";

describe("a duration", () => {
  it("uses suitable units", () => {
    expect([0.35, 4.21, 42, 68, 7_500].map(formatDuration)).toEqual([
      "350 ms",
      "4.2 s",
      "42 s",
      "1 min 8 s",
      "2 h 5 min",
    ]);
  });

  it("uses the page's language", async () => {
    await chooseLanguage("zh");
    expect(formatDuration(68)).toBe("1 分 8 秒");
    await chooseLanguage("en");
  });
});

describe("a relative time", () => {
  const now = new Date("2026-11-19T12:00:00Z");
  const relative = (seconds: number, language: string) =>
    formatRelativeTime(new Date(now.getTime() + seconds * 1000), now, language);
  afterEach(() => chooseLanguage("en"));

  it.each([
    [-5, "刚刚"],
    [-120, "2 分钟前"],
    [-3_599, "1 小时前"],
    [3_599, "1 小时后"],
    [30, "30 秒后"],
    [-90_000, "昨天"],
  ])("of %d seconds is %s in Chinese", async (seconds, text) => {
    await chooseLanguage("zh");
    expect(relative(seconds, "zh")).toBe(text);
  });

  it("is just now for a past moment in English", () => {
    expect([relative(-5, "en"), relative(-120, "en"), relative(3_599, "en")]).toEqual([
      "just now",
      "2 min. ago",
      "in 1 hr.",
    ]);
  });
});

it("numbers of a table have all digits", () => {
  expect([9_876, 12_345].map((value) => formatCount(value, "zh"))).toEqual(["9,876", "12,345"]);
});
