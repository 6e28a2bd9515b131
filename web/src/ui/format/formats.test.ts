import i18next from "i18next";
import { describe, expect, it } from "vitest";
import { formatDuration } from "./formats";

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
    i18next.addResourceBundle("zh", "translation", { common: { units: { min: "分", s: "秒" } } });
    await i18next.changeLanguage("zh");
    expect(formatDuration(68)).toBe("1 分 8 秒");
    await i18next.changeLanguage("en");
  });
});
