import { describe, expect, it } from "vitest";
import { draftOf, patchOf } from "./change";

const VIEW = { model: "large", kinds: ["code"], policy: null, instructions: "", budget: 500 };

describe("a change of settings", () => {
  it("has only what is different", () => {
    expect(patchOf(VIEW, draftOf(VIEW))).toEqual({});
    expect(patchOf(VIEW, { ...draftOf(VIEW), model: "small" })).toEqual({ model: "small" });
    expect(patchOf(VIEW, { ...draftOf(VIEW), kinds: ["code", "linux"] })).toEqual({ kinds: ["code", "linux"] });
    expect(patchOf(VIEW, { ...draftOf(VIEW), policy: { rules: [], allow_all: ["code"] } })).toEqual({
      policy: { rules: [], allow_all: ["code"] },
    });
  });

  it("takes a budget away with nothing, and sets it with a number", () => {
    expect(patchOf(VIEW, { ...draftOf(VIEW), budget: " " })).toEqual({ budget: null });
    expect(patchOf(VIEW, { ...draftOf(VIEW), budget: "700" })).toEqual({ budget: 700 });
  });
});
