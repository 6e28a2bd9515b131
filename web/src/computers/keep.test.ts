import { describe, expect, it } from "vitest";
import { type Kept, keep } from "./keep";

const desktop = (sandbox: string): Kept => ({ sandbox, view: "desktop" });
const all = () => true;

describe("keep", () => {
  it("has what is looked at first, and everything once", () => {
    const before = keep([desktop("a")], { sandbox: "a", view: "files" }, all);
    expect(keep(before, desktop("a"), all)).toEqual([desktop("a"), { sandbox: "a", view: "files" }]);
  });

  it("lets go of the desktop that was not looked at for longest", () => {
    const before = ["c", "b", "a"].map(desktop);
    expect(keep(before, desktop("d"), all).map((each) => each.sandbox)).toEqual(["d", "c", "b"]);
  });

  it("lets go of boxes that are gone, and of more than six views", () => {
    const before = ["a", "b", "c", "d", "e", "f", "g"].map((sandbox): Kept => ({ sandbox, view: "files" }));
    expect(keep(before, null, (each) => each.sandbox !== "a")).toHaveLength(6);
    expect(keep(before, { sandbox: "b", view: "files" }, (each) => each.sandbox === "b")).toHaveLength(1);
  });
});
