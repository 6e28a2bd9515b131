import { describe, expect, it } from "vitest";
import { decodeUtf8Text, fileType, imageMediaType, parseDelimitedRows } from "./file-types";

describe("files", () => {
  it("are distinguished by name", () => {
    expect(["a/chart.PNG", "report.md", "x.csv", "page.html", "noending", "run.py"].map(fileType)).toEqual([
      "image",
      "markdown",
      "table",
      "html",
      "text",
      "text",
    ]);
    expect(imageMediaType("a.svg")).toBe("image/svg+xml");
  });

  it("are text only if all bytes are valid", () => {
    const bytes = new TextEncoder().encode("größer");
    expect(decodeUtf8Text(bytes, true)).toBe("größer");
    expect(decodeUtf8Text(bytes.subarray(0, 3), false)).toBe("gr");
    expect(decodeUtf8Text(bytes.subarray(0, 3), true)).toBeNull();
    expect(decodeUtf8Text(new Uint8Array([65, 0, 66]), true)).toBeNull();
  });
});

describe("tables", () => {
  it("keep quoted text together", () => {
    expect(parseDelimitedRows('a,b\r\n"x,1","say ""hi""\nnow"\n', ",", 10)).toEqual([
      ["a", "b"],
      ["x,1", 'say "hi"\nnow'],
    ]);
  });

  it("end at the row limit", () => {
    expect(parseDelimitedRows("1\n2\n3\n4", "\t", 2)).toEqual([["1"], ["2"]]);
    expect(parseDelimitedRows("a\tb", "\t", 2)).toEqual([["a", "b"]]);
  });
});
