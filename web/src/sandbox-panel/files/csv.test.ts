import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { detectDelimiter, parseCsv } from "./csv";

describe("parseCsv", () => {
  it("understands quotes, doubled quotes and line breaks in them", () => {
    expect(parseCsv('a,b\r\n"x ""y""","1\n2"\n', ",").rows).toEqual([
      ["a", "b"],
      ['x "y"', "1\n2"],
    ]);
  });

  it("keeps empty cells, and a last line without line break", () => {
    expect(parseCsv("a,,\n,b", ",").rows).toEqual([
      ["a", "", ""],
      ["", "b"],
    ]);
    expect(parseCsv("", ",").rows).toEqual([]);
  });

  it("stops at the limit and reports it", () => {
    expect(parseCsv("1\n2\n3\n", ",", 2)).toEqual({ rows: [["1"], ["2"]], more: true });
    expect(parseCsv("1\n2\n", ",", 2).more).toBe(false);
  });

  it("round-trips any table", () => {
    const cell = fc.string({ unit: fc.constantFrom("a", '"', ",", "\n", " ", "ü") });
    fc.assert(
      fc.property(fc.array(fc.array(cell, { minLength: 2, maxLength: 4 }), { minLength: 1, maxLength: 5 }), (rows) => {
        const text = rows.map((row) => row.map((each) => `"${each.replaceAll('"', '""')}"`).join(",")).join("\n");
        expect(parseCsv(text, ",").rows).toEqual(rows);
      }),
    );
  });
});

describe("detectDelimiter", () => {
  it("looks at the name and the first line", () => {
    expect(detectDelimiter("a,b", "tsv")).toBe("\t");
    expect(detectDelimiter("a;b;c,d\n1,2,3,4,5,6", "csv")).toBe(";");
    expect(detectDelimiter("a", "csv")).toBe(",");
  });
});
