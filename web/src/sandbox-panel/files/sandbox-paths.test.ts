import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  ancestorPaths,
  baseName,
  fileExtension,
  fileNameProblem,
  isPathBelow,
  joinPath,
  normalizePath,
  parentPath,
  percentDecodePath,
  percentEncodePath,
  safeDisplayName,
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
    expect(isPathBelow("/ab", "/a")).toBe(false);
    expect(isPathBelow("/a/b", "/a")).toBe(true);
  });

  it("have extensions, except hidden files", () => {
    expect([fileExtension("/a/B.PNG"), fileExtension("/a.b/c"), fileExtension("/.bashrc")]).toEqual(["png", "", ""]);
  });

  it("are displayed without misleading characters", () => {
    expect(safeDisplayName("a\nb\tc")).toBe("a↵b⇥c");
    expect(safeDisplayName("photo\u202Egnp.exe")).toBe("photo⟨202E⟩gnp.exe");
    expect(safeDisplayName("\uDCFFx")).toBe("\uFFFDx");
    expect(safeDisplayName("<img src=x onerror=alert(1)>")).toBe("<img src=x onerror=alert(1)>");
    expect(safeDisplayName("日本 😀")).toBe("日本 😀");
  });

  it("are encoded byte for byte", () => {
    expect(percentEncodePath("/a b/ü")).toBe("%2Fa%20b%2F%C3%BC");
    expect(percentEncodePath("/\uDCFF")).toBe("%2F%FF");
    expect(percentDecodePath("/a%FF%C3%BC")).toBe("/a\uDCFFü");
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        const raw = [...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0").toUpperCase()}`).join("");
        const encodedAgain = percentEncodePath(percentDecodePath(raw)).replace(
          /[^%]|%(..)/g,
          (match, hex: string | undefined) =>
            hex ? match : `%${match.charCodeAt(0).toString(16).padStart(2, "0").toUpperCase()}`,
        );
        expect(encodedAgain).toBe(raw);
      }),
    );
  });

  it("reports invalid names", () => {
    expect([" ", "a/b", "..", "x".repeat(256), "ü.txt"].map(fileNameProblem)).toEqual([
      "empty",
      "slash",
      "dots",
      "long",
      null,
    ]);
  });
});
