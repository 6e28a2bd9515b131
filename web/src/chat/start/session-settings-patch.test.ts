import { describe, expect, it } from "vitest";
import { sessionSettingsDraft, sessionSettingsPatch } from "./session-settings-patch";

const VIEW = { model: "large", kinds: ["code"], policy: null, instructions: "", budget: 500, network: null };

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

  it("contains a changed network", () => {
    const withRules = { ...VIEW, network: ["allow packages", "allow a.org"] };
    const draft = sessionSettingsDraft(withRules);
    expect(draft.network).toEqual({ choice: "own", rules: "allow packages\nallow a.org" });
    expect(sessionSettingsPatch(withRules, draft)).toEqual({});
    expect(sessionSettingsPatch(withRules, { ...draft, network: { choice: "none", rules: "" } })).toEqual({
      network: "none",
    });
    expect(sessionSettingsPatch(withRules, { ...draft, network: { choice: "default", rules: "" } })).toEqual({
      network: null,
    });
  });

  it("removes a budget if empty, and sets a number", () => {
    expect(sessionSettingsPatch(VIEW, { ...sessionSettingsDraft(VIEW), budget: " " })).toEqual({ budget: null });
    expect(sessionSettingsPatch(VIEW, { ...sessionSettingsDraft(VIEW), budget: "700" })).toEqual({ budget: 700 });
  });
});
