import { describe, expect, it } from "vitest";
import { fenced, shapeOf, typeOf } from "./kinds";

describe("shapeOf", () => {
  it("goes by the name", () => {
    const shapes = ["a.PNG", "a.svg", "a.md", "a.tsv", "a.html", "a.pdf", "a.mp4", "a.mp3", "a.py", "Makefile"].map(
      shapeOf,
    );
    expect(shapes).toEqual(["image", "svg", "markdown", "table", "html", "pdf", "video", "audio", "text", "text"]);
  });
});

describe("typeOf", () => {
  it("never names a type that runs as a page", () => {
    expect(["a.html", "a.xhtml", "a.xml", "a.js"].map(typeOf)).toEqual(Array(4).fill("application/octet-stream"));
    expect(typeOf("/a/b.jpeg")).toBe("image/jpeg");
  });
});

describe("fenced", () => {
  it("puts the policy before anything of the page", () => {
    expect(fenced("<script>1</script>")).toMatch(/^<!doctype html><meta http-equiv="Content-Security-Policy"/);
    expect(fenced("")).toContain("default-src 'none'");
  });
});
