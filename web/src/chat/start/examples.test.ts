import { describe, expect, it } from "vitest";
import { filesOf, kindsFor } from "./examples";

const KINDS = [
  { name: "code", screen: false, built: true, image: "code" },
  { name: "linux", screen: true, built: false, image: "desktop" },
  { name: "browser", screen: true, built: true, image: "browser" },
];

describe("an example", () => {
  it("uses a sandbox with a desktop where its text needs one", () => {
    expect(kindsFor("desktop", ["code"], KINDS)).toEqual(["linux"]);
    expect(kindsFor("desktop", ["code", "linux"], KINDS)).toEqual(["code", "linux"]);
    expect(kindsFor("desktop", ["code"], KINDS.slice(0, 1))).toBeNull();
  });

  it("keeps the chosen sandbox if that will do", () => {
    expect(kindsFor("data", ["linux"], KINDS)).toEqual(["linux"]);
    expect(kindsFor("page", ["browser"], KINDS)).toEqual(["code"]);
    expect(kindsFor("explain", [], KINDS)).toEqual(["code"]);
  });

  it("brings the file that it speaks of", async () => {
    const [file] = filesOf("data");
    expect(file?.name).toBe("visitors.csv");
    expect((await file?.text())?.split("\n")[0]).toBe("day,visitors,orders");
    expect(filesOf("page")).toEqual([]);
  });
});
