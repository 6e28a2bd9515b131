import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  ancestorPaths,
  baseName,
  decodePath,
  displayName,
  encodePath,
  fileExtension,
  isBelow,
  joinPath,
  nameProblem,
  normalizePath,
  parentPath,
} from "./sandbox-paths";

describe("paths", () => {
  it("are joined and split", () => {
    expect(joinPath("/", "a")).toBe("/a");
    expect(joinPath("/a", "b")).toBe("/a/b");
    expect(parentPath("/a/b")).toBe("/a");
    expect(parentPath("/a")).toBe("/");
    expect(baseName("/a/b.txt")).toBe("b.txt");
    expect(baseName("/")).toBe("/");
    expect(normalizePath("/a/../b//./c/")).toBe("/b/c");
    expect(normalizePath("../..")).toBe("/");
    expect(ancestorPaths("/a/b")).toEqual(["/", "/a", "/a/b"]);
    expect(isBelow("/ab", "/a")).toBe(false);
    expect(isBelow("/a/b", "/a")).toBe(true);
  });

  it("have extensions, except hidden files", () => {
    expect([fileExtension("/a/B.PNG"), fileExtension("/a.b/c"), fileExtension("/.bashrc")]).toEqual(["png", "", ""]);
  });

  it("are displayed without misleading characters", () => {
    expect(displayName("a\nb\tc")).toBe("a↵b⇥c");
    expect(displayName("photo\u202Egnp.exe")).toBe("photo⟨202E⟩gnp.exe");
    expect(displayName("\uDCFFx")).toBe("\uFFFDx");
    expect(displayName("<img src=x onerror=alert(1)>")).toBe("<img src=x onerror=alert(1)>");
    expect(displayName("日本 😀")).toBe("日本 😀");
  });

  it("are encoded byte for byte", () => {
    expect(encodePath("/a b/ü")).toBe("%2Fa%20b%2F%C3%BC");
    expect(encodePath("/\uDCFF")).toBe("%2F%FF");
    expect(decodePath("/a%FF%C3%BC")).toBe("/a\uDCFFü");
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        const raw = [...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0").toUpperCase()}`).join("");
        const again = encodePath(decodePath(raw)).replace(/[^%]|%(..)/g, (whole, hex: string | undefined) =>
          hex ? whole : `%${whole.charCodeAt(0).toString(16).padStart(2, "0").toUpperCase()}`,
        );
        expect(again).toBe(raw);
      }),
    );
  });

  it("reports invalid names", () => {
    expect([" ", "a/b", "..", "x".repeat(256), "ü.txt"].map(nameProblem)).toEqual([
      "empty",
      "slash",
      "dots",
      "long",
      null,
    ]);
  });
});
