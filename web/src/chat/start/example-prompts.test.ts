import { describe, expect, it } from "vitest";
import { examplePromptFiles, kindsForExamplePrompt } from "./example-prompts";

const KINDS = [
  { name: "code", screen: false, built: true, image: "code" },
  { name: "linux", screen: true, built: false, image: "desktop" },
  { name: "browser", screen: true, built: true, image: "browser" },
];

describe("an example", () => {
  it("uses a sandbox with a desktop where its text needs one", () => {
    expect(kindsForExamplePrompt("desktop", ["code"], KINDS)).toEqual(["linux"]);
    expect(kindsForExamplePrompt("desktop", ["code", "linux"], KINDS)).toEqual(["code", "linux"]);
    expect(kindsForExamplePrompt("desktop", ["code"], KINDS.slice(0, 1))).toBeNull();
  });

  it("keeps the chosen sandbox if suitable", () => {
    expect(kindsForExamplePrompt("data", ["linux"], KINDS)).toEqual(["linux"]);
    expect(kindsForExamplePrompt("page", ["browser"], KINDS)).toEqual(["code"]);
    expect(kindsForExamplePrompt("explain", [], KINDS)).toEqual(["code"]);
  });

  it("attaches the file it mentions", async () => {
    const [file] = examplePromptFiles("data");
    expect(file?.name).toBe("visitors.csv");
    expect((await file?.text())?.split("\n")[0]).toBe("day,visitors,orders");
    expect(examplePromptFiles("page")).toEqual([]);
  });
});
