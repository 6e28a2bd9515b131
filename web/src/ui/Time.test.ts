import i18next from "i18next";
import { describe, expect, it } from "vitest";
import { duration } from "./Time";

describe("a duration", () => {
  it("is told in units that fit", () => {
    expect([0.35, 4.21, 42, 68, 7_500].map(duration)).toEqual(["350 ms", "4.2 s", "42 s", "1 min 8 s", "2 h 5 min"]);
  });

  it("is told in the language of the page", async () => {
    i18next.addResourceBundle("zh", "translation", { common: { units: { min: "分", s: "秒" } } });
    await i18next.changeLanguage("zh");
    expect(duration(68)).toBe("1 分 8 秒");
    await i18next.changeLanguage("en");
  });
});
