import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decoded, encoded, ending, isBelow, join, nameOf, nameProblem, normal, parent, shown, trail } from "./paths";

describe("paths", () => {
  it("are put together and taken apart", () => {
    expect(join("/", "a")).toBe("/a");
    expect(join("/a", "b")).toBe("/a/b");
    expect(parent("/a/b")).toBe("/a");
    expect(parent("/a")).toBe("/");
    expect(nameOf("/a/b.txt")).toBe("b.txt");
    expect(nameOf("/")).toBe("/");
    expect(normal("/a/../b//./c/")).toBe("/b/c");
    expect(normal("../..")).toBe("/");
    expect(trail("/a/b")).toEqual(["/", "/a", "/a/b"]);
    expect(isBelow("/ab", "/a")).toBe(false);
    expect(isBelow("/a/b", "/a")).toBe(true);
  });

  it("have endings, but hidden files have none", () => {
    expect([ending("/a/B.PNG"), ending("/a.b/c"), ending("/.bashrc")]).toEqual(["png", "", ""]);
  });

  it("are shown without anything that misleads", () => {
    expect(shown("a\nb\tc")).toBe("a↵b⇥c");
    expect(shown("photo\u202Egnp.exe")).toBe("photo⟨202E⟩gnp.exe");
    expect(shown("\uDCFFx")).toBe("\uFFFDx");
    expect(shown("<img src=x onerror=alert(1)>")).toBe("<img src=x onerror=alert(1)>");
    expect(shown("日本 😀")).toBe("日本 😀");
  });

  it("go to the box byte for byte", () => {
    expect(encoded("/a b/ü")).toBe("%2Fa%20b%2F%C3%BC");
    expect(encoded("/\uDCFF")).toBe("%2F%FF");
    expect(decoded("/a%FF%C3%BC")).toBe("/a\uDCFFü");
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        const raw = [...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0").toUpperCase()}`).join("");
        const again = encoded(decoded(raw)).replace(/[^%]|%(..)/g, (whole, hex: string | undefined) =>
          hex ? whole : `%${whole.charCodeAt(0).toString(16).padStart(2, "0").toUpperCase()}`,
        );
        expect(again).toBe(raw);
      }),
    );
  });

  it("say what is wrong with a new name", () => {
    expect([" ", "a/b", "..", "x".repeat(256), "ü.txt"].map(nameProblem)).toEqual([
      "empty",
      "slash",
      "dots",
      "long",
      null,
    ]);
  });
});
