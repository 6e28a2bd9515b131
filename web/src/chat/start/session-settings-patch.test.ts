import { describe, expect, it } from "vitest";
import { sessionSettingsDraft, sessionSettingsPatch } from "./session-settings-patch";

const VIEW = { model: "large", kinds: ["code"], policy: null, instructions: "", budget: 500 };

describe("a change of settings", () => {
  it("contains only differences", () => {
    expect(sessionSettingsPatch(VIEW, sessionSettingsDraft(VIEW))).toEqual({});
    expect(sessionSettingsPatch(VIEW, { ...sessionSettingsDraft(VIEW), model: "small" })).toEqual({ model: "small" });
    expect(sessionSettingsPatch(VIEW, { ...sessionSettingsDraft(VIEW), kinds: ["code", "linux"] })).toEqual({
      kinds: ["code", "linux"],
    });
    expect(
      sessionSettingsPatch(VIEW, { ...sessionSettingsDraft(VIEW), policy: { rules: [], allow_all: ["code"] } }),
    ).toEqual({
      policy: { rules: [], allow_all: ["code"] },
    });
  });

  it("removes a budget if empty, and sets a number", () => {
    expect(sessionSettingsPatch(VIEW, { ...sessionSettingsDraft(VIEW), budget: " " })).toEqual({ budget: null });
    expect(sessionSettingsPatch(VIEW, { ...sessionSettingsDraft(VIEW), budget: "700" })).toEqual({ budget: 700 });
  });
});
