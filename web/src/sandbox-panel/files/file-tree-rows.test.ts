import { describe, expect, it } from "vitest";
import { buildFileTreeRows, type DirectoryListing, fileTreeKeyMove } from "./file-tree-rows";
import type { FileEntry } from "./sandbox-files";

const entry = (path: string, type: FileEntry["type"] = "file"): FileEntry => ({
  path,
  name: path.slice(path.lastIndexOf("/") + 1),
  type,
  size: 0,
  modifiedAt: "",
  mode: 644,
});
const DIRECTORIES: Record<string, DirectoryListing> = {
  "/w": { entries: [entry("/w/a", "directory"), entry("/w/b", "directory"), entry("/w/z")] },
  "/w/a": { entries: [entry("/w/a/x")] },
  "/w/b": {},
};
const rows = (...open: string[]) => buildFileTreeRows("/w", new Set(open), (path) => DIRECTORIES[path] ?? {});
const rowLabels = (...open: string[]) =>
  rows(...open).map((row) => `${row.level} ${row.type === "entry" ? row.entry.path : row.note}`);

describe("buildFileTreeRows", () => {
  it("lists entries of open directories", () => {
    expect(rowLabels("/w/a")).toEqual(["1 /w/a", "2 /w/a/x", "1 /w/b", "1 /w/z"]);
  });

  it("shows loading directories", () => {
    expect(rowLabels("/w/b")).toEqual(["1 /w/a", "1 /w/b", "2 loading", "1 /w/z"]);
  });

  it("follows no links, so that cycles end", () => {
    const circle = { entries: [entry("/l", "symlink")] };
    expect(buildFileTreeRows("/", new Set(["/l"]), () => circle)).toHaveLength(1);
  });
});

describe("fileTreeKeyMove", () => {
  it("moves between entries only", () => {
    expect(fileTreeKeyMove(rows("/w/b"), 1, "ArrowDown")).toEqual({ to: 3 });
    expect(fileTreeKeyMove(rows(), 0, "ArrowUp")).toBeNull();
    expect(fileTreeKeyMove(rows(), 0, "End")).toEqual({ to: 2 });
  });

  it("opens, enters, leaves and closes directories", () => {
    expect(fileTreeKeyMove(rows(), 0, "ArrowRight")).toEqual({ open: "/w/a" });
    expect(fileTreeKeyMove(rows("/w/a"), 0, "ArrowRight")).toEqual({ to: 1 });
    expect(fileTreeKeyMove(rows("/w/a"), 1, "ArrowLeft")).toEqual({ to: 0 });
    expect(fileTreeKeyMove(rows("/w/a"), 0, "ArrowLeft")).toEqual({ close: "/w/a" });
    expect(fileTreeKeyMove(rows(), 2, "ArrowRight")).toBeNull();
  });
});
