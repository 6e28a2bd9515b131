import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { counts, hunks, lines } from "./diff";

const text = fc.array(fc.constantFrom("a", "b", "c", "", "  d"), { maxLength: 30 }).map((parts) => parts.join("\n"));
const written = (value: string) => (value === "" ? [] : value.replace(/\n$/, "").split("\n"));

describe("what changes between two texts", () => {
  it("is told with both texts in it, whatever they are", () => {
    fc.assert(
      fc.property(text, text, (before, after) => {
        const all = lines(before, after);
        expect(all.filter((line) => line.sign !== "+").map((line) => line.text)).toEqual(written(before));
        expect(all.filter((line) => line.sign !== "-").map((line) => line.text)).toEqual(written(after));
      }),
    );
  });

  it("is as small as it can be", () => {
    const all = lines("one\ntwo\nthree\nfour\n", "one\n2\nthree\nfour\nfive\n");
    expect(all.map((line) => line.sign + line.text)).toEqual([" one", "-two", "+2", " three", " four", "+five"]);
    expect(counts(all)).toEqual({ added: 2, removed: 1 });
    expect(counts(lines("same\n", "same\n"))).toEqual({ added: 0, removed: 0 });
  });

  it("leaves out what is far from a change, and says how much", () => {
    const many = Array.from({ length: 100 }, (_, index) => `line ${index}`);
    const changed = many.map((line, index) => (index === 50 ? "new" : line));
    const [hunk, ...more] = hunks(lines(many.join("\n"), changed.join("\n")));
    expect(more).toEqual([]);
    expect(hunk).toMatchObject({ skipped: 47, oldLine: 48, newLine: 48 });
    expect(hunk?.lines.length).toBe(8);
  });

  it("does not take long for texts that have nothing in common", () => {
    const one = Array.from({ length: 20_000 }, (_, index) => `a${index}`).join("\n");
    const other = Array.from({ length: 20_000 }, (_, index) => `b${index}`).join("\n");
    expect(counts(lines(one, other))).toEqual({ added: 20_000, removed: 20_000 });
  });
});
