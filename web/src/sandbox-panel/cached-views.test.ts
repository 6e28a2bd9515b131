import { describe, expect, it } from "vitest";
import { type CachedSandboxView, updateCachedViews } from "./cached-views";

const desktop = (sandbox: string): CachedSandboxView => ({ sandbox, view: "desktop" });
const all = () => true;

describe("updateCachedViews", () => {
  it("has the current view first, and each view once", () => {
    const before = updateCachedViews([desktop("a")], { sandbox: "a", view: "files" }, all);
    expect(updateCachedViews(before, desktop("a"), all)).toEqual([desktop("a"), { sandbox: "a", view: "files" }]);
  });

  it("drops the least recently viewed desktop", () => {
    const before = ["c", "b", "a"].map(desktop);
    expect(updateCachedViews(before, desktop("d"), all).map((each) => each.sandbox)).toEqual(["d", "c", "b"]);
  });

  it("drops ended sandboxes, and more than six views", () => {
    const before = ["a", "b", "c", "d", "e", "f", "g"].map(
      (sandbox): CachedSandboxView => ({ sandbox, view: "files" }),
    );
    expect(updateCachedViews(before, null, (each) => each.sandbox !== "a")).toHaveLength(6);
    expect(updateCachedViews(before, { sandbox: "b", view: "files" }, (each) => each.sandbox === "b")).toHaveLength(1);
  });
});
