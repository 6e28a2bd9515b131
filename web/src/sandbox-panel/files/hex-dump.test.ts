import { describe, expect, it } from "vitest";
import { decodeUtf8Text, formatHexLines } from "./hex-dump";

const bytes = (...values: number[]) => new Uint8Array(values);

describe("decodeUtf8Text", () => {
  it("decodes only valid UTF-8", () => {
    expect(decodeUtf8Text(new TextEncoder().encode("grün 😀"), true)).toBe("grün 😀");
    expect(decodeUtf8Text(bytes(0xff, 0xfe), true)).toBeNull();
    expect(decodeUtf8Text(bytes(65, 0, 66), true)).toBeNull();
  });

  it("accepts a character cut at the end", () => {
    expect(decodeUtf8Text(bytes(65, 0xc3), false)).toBe("A");
    expect(decodeUtf8Text(bytes(65, 0xc3), true)).toBeNull();
  });
});

describe("formatHexLines", () => {
  it("shows offsets, bytes and characters", () => {
    const [first, second] = formatHexLines(new TextEncoder().encode("Paddock runs ag\u0001nts"));
    expect(first).toBe("00000000  50 61 64 64 6f 63 6b 20  72 75 6e 73 20 61 67 01  Paddock runs ag.");
    expect(second).toMatch(/^00000010 {2}6e 74 73 +nts$/);
  });
});
