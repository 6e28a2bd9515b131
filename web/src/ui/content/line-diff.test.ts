import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { countChanges, diffLines, foldUnchangedLines } from "./line-diff";

const show = (before: string, after: string) => diffLines(before, after).map((line) => line.sign + line.text);
const lines = fc.array(fc.constantFrom("a", "b", "c", "d"), { maxLength: 30 });
const text = (parts: string[]) => parts.map((part) => `${part}\n`).join("");

describe("diffLines", () => {
  it("lists unchanged, removed and added lines", () => {
    expect(show("one\ntwo\nthree\n", "one\n2\nthree\nfour\n")).toEqual([" one", "-two", "+2", " three", "+four"]);
  });

  it("numbers the lines of both texts", () => {
    expect(diffLines("a\nb\nc\n", "a\nc\n")).toEqual([
      { sign: " ", text: "a", old: 1, new: 1 },
      { sign: "-", text: "b", old: 2, new: null },
      { sign: " ", text: "c", old: 3, new: 2 },
    ]);
  });

  it("reports no changes for equal and empty texts", () => {
    expect(show("", "")).toEqual([]);
    expect(show("", "a\n")).toEqual(["+a"]);
    expect(show("a", "")).toEqual(["-a"]);
    expect(show("a\n\n", "a\n\n")).toEqual([" a", " "]);
  });

  it("rebuilds any two texts, with correct line numbers", () => {
    fc.assert(
      fc.property(lines, lines, (oldLines, newLines) => {
        const found = diffLines(text(oldLines), text(newLines));
        expect(found.filter((line) => line.sign !== "+").map((line) => line.text)).toEqual(oldLines);
        expect(found.filter((line) => line.sign !== "-").map((line) => line.text)).toEqual(newLines);
        for (const line of found) {
          if (line.old !== null) expect(oldLines[line.old - 1]).toBe(line.text);
          if (line.new !== null) expect(newLines[line.new - 1]).toBe(line.text);
        }
      }),
    );
  });

  it("finds the shortest edit script", () => {
    fc.assert(
      fc.property(lines, lines, (oldLines, newLines) => {
        const { removed, added } = countChanges(diffLines(text(oldLines), text(newLines)));
        expect(removed + added).toBe(oldLines.length + newLines.length - 2 * longestCommon(oldLines, newLines));
      }),
    );
  });

  it("stops searching early for unrelated texts", () => {
    const many = (mark: string) => text(Array.from({ length: 20_000 }, (_, at) => `${mark}${at}`));
    const startedAt = performance.now();
    expect(diffLines(many("a"), many("b"))).toHaveLength(40_000);
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });
});

describe("foldUnchangedLines", () => {
  it("keeps a few lines around a change and folds the rest", () => {
    const before = text(Array.from({ length: 30 }, (_, at) => String(at)));
    const parts = foldUnchangedLines(diffLines(before, before.replace("15\n", "fifteen\n")), 2);
    expect(parts.map((part) => [part.type, part.lines.length])).toEqual([
      ["same", 13],
      ["lines", 6],
      ["same", 12],
    ]);
  });
});

function longestCommon(one: string[], other: string[]): number {
  const row = new Array<number>(other.length + 1).fill(0);
  for (const each of one) {
    let diagonal = 0;
    for (let at = 1; at <= other.length; at += 1) {
      const above = row[at] ?? 0;
      row[at] = each === other[at - 1] ? diagonal + 1 : Math.max(above, row[at - 1] ?? 0);
      diagonal = above;
    }
  }
  return row[other.length] ?? 0;
}
