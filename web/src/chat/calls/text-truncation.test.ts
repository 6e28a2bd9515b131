import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MAX_CHARACTERS, MAX_LINES, splitTextIntoPieces, truncateText } from "./text-truncation";

describe("long texts", () => {
  it("are cut after the line limit", () => {
    const manyLines = Array.from({ length: 1000 }, (_, index) => `${index}`).join("\n");
    const truncated = truncateText(manyLines);
    expect(truncated).toMatchObject({ isCut: true, lines: 1000 });
    expect(truncated.text.split("\n").length).toBe(MAX_LINES);
    expect(manyLines.startsWith(truncated.text)).toBe(true);
  });

  it("are cut after the character limit", () => {
    expect(truncateText("x".repeat(1_000_000)).text.length).toBe(MAX_CHARACTERS);
  });

  it("are kept if short", () => {
    expect(truncateText("a\nb")).toEqual({ text: "a\nb", isCut: false, lines: 2 });
    expect(truncateText("")).toEqual({ text: "", isCut: false, lines: 1 });
  });

  it("equal their joined pieces", () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom("\n", "word", "x".repeat(30_000), "😀".repeat(10_001)), { maxLength: 20 }),
        (parts) => {
          const text = parts.join("");
          const found = splitTextIntoPieces(text);
          expect(found.join("")).toBe(text);
          expect(found.every((piece) => piece.length > 0 && encodeURIComponent(piece) !== "")).toBe(true);
        },
      ),
    );
  });
});
