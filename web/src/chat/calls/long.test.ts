import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { cut, MOST_LETTERS, MOST_LINES, pieces } from "./long";

describe("long texts", () => {
  it("are cut after so many lines", () => {
    const many = Array.from({ length: 1000 }, (_, index) => `${index}`).join("\n");
    const short = cut(many);
    expect(short).toMatchObject({ isCut: true, lines: 1000 });
    expect(short.text.split("\n").length).toBe(MOST_LINES);
    expect(many.startsWith(short.text)).toBe(true);
  });

  it("are cut after so many letters, if they are one line", () => {
    expect(cut("x".repeat(1_000_000)).text.length).toBe(MOST_LETTERS);
  });

  it("stay whole if they are not long", () => {
    expect(cut("a\nb")).toEqual({ text: "a\nb", isCut: false, lines: 2 });
    expect(cut("")).toEqual({ text: "", isCut: false, lines: 1 });
  });

  it("are the same when their pieces are joined", () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom("\n", "word", "x".repeat(30_000), "😀".repeat(10_001)), { maxLength: 20 }),
        (parts) => {
          const text = parts.join("");
          const found = pieces(text);
          expect(found.join("")).toBe(text);
          expect(found.every((piece) => piece.length > 0 && encodeURIComponent(piece) !== "")).toBe(true);
        },
      ),
    );
  });
});
