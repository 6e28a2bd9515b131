import { describe, expect, it } from "vitest";
import { decoded, pictureType, rowsOf, sortOf } from "./kinds";

describe("files", () => {
  it("are told apart by their names", () => {
    expect(["a/chart.PNG", "report.md", "x.csv", "page.html", "noending", "run.py"].map(sortOf)).toEqual([
      "image",
      "markdown",
      "table",
      "html",
      "text",
      "text",
    ]);
    expect(pictureType("a.svg")).toBe("image/svg+xml");
  });

  it("are text only if all of them is", () => {
    const bytes = new TextEncoder().encode("größer");
    expect(decoded(bytes, true)).toBe("größer");
    expect(decoded(bytes.subarray(0, 3), false)).toBe("gr");
    expect(decoded(bytes.subarray(0, 3), true)).toBeNull();
    expect(decoded(new Uint8Array([65, 0, 66]), true)).toBeNull();
  });
});

describe("tables", () => {
  it("keep what is in quotes together", () => {
    expect(rowsOf('a,b\r\n"x,1","say ""hi""\nnow"\n', ",", 10)).toEqual([
      ["a", "b"],
      ["x,1", 'say "hi"\nnow'],
    ]);
  });

  it("end where enough was read", () => {
    expect(rowsOf("1\n2\n3\n4", "\t", 2)).toEqual([["1"], ["2"]]);
    expect(rowsOf("a\tb", "\t", 2)).toEqual([["a", "b"]]);
  });
});
