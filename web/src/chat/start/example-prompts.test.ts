import { describe, expect, it } from "vitest";
import { exampleFiles, exampleKinds } from "./example-prompts";

const KINDS = [
  { name: "code", screen: false, built: true, image: "code" },
  { name: "linux", screen: true, built: false, image: "desktop" },
  { name: "browser", screen: true, built: true, image: "browser" },
];

describe("an example", () => {
  it("uses a sandbox with a desktop where its text needs one", () => {
    expect(exampleKinds("desktop", ["code"], KINDS)).toEqual(["linux"]);
    expect(exampleKinds("desktop", ["code", "linux"], KINDS)).toEqual(["code", "linux"]);
    expect(exampleKinds("desktop", ["code"], KINDS.slice(0, 1))).toBeNull();
  });

  it("keeps the chosen sandbox if suitable", () => {
    expect(exampleKinds("data", ["linux"], KINDS)).toEqual(["linux"]);
    expect(exampleKinds("page", ["browser"], KINDS)).toEqual(["code"]);
    expect(exampleKinds("explain", [], KINDS)).toEqual(["code"]);
  });

  it("attaches the file it mentions", async () => {
    const [file] = exampleFiles("data");
    expect(file?.name).toBe("visitors.csv");
    expect((await file?.text())?.split("\n")[0]).toBe("day,visitors,orders");
    expect(exampleFiles("page")).toEqual([]);
  });
});
