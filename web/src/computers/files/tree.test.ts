import { describe, expect, it } from "vitest";
import type { Entry } from "./box-files";
import { type Listed, onKey, rowsOf } from "./tree";

const entry = (path: string, type: Entry["type"] = "file"): Entry => ({
  path,
  name: path.slice(path.lastIndexOf("/") + 1),
  type,
  size: 0,
  modifiedAt: "",
  mode: 644,
});
const DIRECTORIES: Record<string, Listed> = {
  "/w": { entries: [entry("/w/a", "directory"), entry("/w/b", "directory"), entry("/w/z")] },
  "/w/a": { entries: [entry("/w/a/x")] },
  "/w/b": {},
};
const rows = (...open: string[]) => rowsOf("/w", new Set(open), (path) => DIRECTORIES[path] ?? {});
const words = (...open: string[]) =>
  rows(...open).map((row) => `${row.level} ${row.type === "entry" ? row.entry.path : row.note}`);

describe("rowsOf", () => {
  it("has what is open below its directory", () => {
    expect(words("/w/a")).toEqual(["1 /w/a", "2 /w/a/x", "1 /w/b", "1 /w/z"]);
  });

  it("says what is on its way", () => {
    expect(words("/w/b")).toEqual(["1 /w/a", "1 /w/b", "2 loading", "1 /w/z"]);
  });

  it("opens no link, so that a circle of them has an end", () => {
    const circle = { entries: [entry("/l", "symlink")] };
    expect(rowsOf("/", new Set(["/l"]), () => circle)).toHaveLength(1);
  });
});

describe("onKey", () => {
  it("moves over entries only", () => {
    expect(onKey(rows("/w/b"), 1, "ArrowDown")).toEqual({ to: 3 });
    expect(onKey(rows(), 0, "ArrowUp")).toBeNull();
    expect(onKey(rows(), 0, "End")).toEqual({ to: 2 });
  });

  it("opens, goes in, goes out and shuts", () => {
    expect(onKey(rows(), 0, "ArrowRight")).toEqual({ open: "/w/a" });
    expect(onKey(rows("/w/a"), 0, "ArrowRight")).toEqual({ to: 1 });
    expect(onKey(rows("/w/a"), 1, "ArrowLeft")).toEqual({ to: 0 });
    expect(onKey(rows("/w/a"), 0, "ArrowLeft")).toEqual({ shut: "/w/a" });
    expect(onKey(rows(), 2, "ArrowRight")).toBeNull();
  });
});
