import { describe, expect, it } from "vitest";
import { draftFromSettings, settingsPatch } from "./settings-patch";

const VIEW = { model: "large", kinds: ["code"], policy: null, instructions: "", budget: 500 };

describe("a change of settings", () => {
  it("contains only differences", () => {
    expect(settingsPatch(VIEW, draftFromSettings(VIEW))).toEqual({});
    expect(settingsPatch(VIEW, { ...draftFromSettings(VIEW), model: "small" })).toEqual({ model: "small" });
    expect(settingsPatch(VIEW, { ...draftFromSettings(VIEW), kinds: ["code", "linux"] })).toEqual({
      kinds: ["code", "linux"],
    });
    expect(settingsPatch(VIEW, { ...draftFromSettings(VIEW), policy: { rules: [], allow_all: ["code"] } })).toEqual({
      policy: { rules: [], allow_all: ["code"] },
    });
  });

  it("removes a budget if empty, and sets a number", () => {
    expect(settingsPatch(VIEW, { ...draftFromSettings(VIEW), budget: " " })).toEqual({ budget: null });
    expect(settingsPatch(VIEW, { ...draftFromSettings(VIEW), budget: "700" })).toEqual({ budget: 700 });
  });
});
