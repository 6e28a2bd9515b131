import { describe, expect, it } from "vitest";
import { fileDisplay, safeMediaType, sandboxedHtml } from "./file-types";

describe("fileDisplay", () => {
  it("goes by the name", () => {
    const shapes = ["a.PNG", "a.svg", "a.md", "a.tsv", "a.html", "a.pdf", "a.mp4", "a.mp3", "a.py", "Makefile"].map(
      fileDisplay,
    );
    expect(shapes).toEqual(["image", "svg", "markdown", "table", "html", "pdf", "video", "audio", "text", "text"]);
  });
});

describe("safeMediaType", () => {
  it("never returns an executable type", () => {
    expect(["a.html", "a.xhtml", "a.xml", "a.js"].map(safeMediaType)).toEqual(
      Array(4).fill("application/octet-stream"),
    );
    expect(safeMediaType("/a/b.jpeg")).toBe("image/jpeg");
  });
});

describe("sandboxedHtml", () => {
  it("puts the policy before the page's content", () => {
    expect(sandboxedHtml("<script>1</script>")).toMatch(/^<!doctype html><meta http-equiv="Content-Security-Policy"/);
    expect(sandboxedHtml("")).toContain("default-src 'none'");
  });
});
