import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { type Entry, packed, placed } from "./tar";

const made: string[] = [];

afterEach(() => {
  for (const directory of made.splice(0)) rmSync(directory, { recursive: true });
});

/** What `tar` makes of it: contents by path. */
async function unpacked(entries: Entry[]): Promise<Record<string, string>> {
  const directory = mkdtempSync(join(tmpdir(), "tar-"));
  made.push(directory);
  const file = join(directory, "made.tar");
  writeFileSync(file, new Uint8Array(await packed(entries).arrayBuffer()));
  const listed = execFileSync("tar", ["--quoting-style=literal", "-tf", file], { encoding: "utf8" });
  execFileSync("tar", ["-xf", file, "-C", directory]);
  const names = listed.split("\n").filter(Boolean);
  return Object.fromEntries(names.map((name) => [name, readFileSync(join(directory, name), "utf8")]));
}

describe("a tar made in the browser", () => {
  it("is read by tar, whatever the sizes", async () => {
    const sizes = [0, 1, 511, 512, 513, 5000];
    const entries = sizes.map((size) => ({ path: `data/${size}.txt`, content: new Blob(["x".repeat(size)]) }));
    const found = await unpacked(entries);
    expect(Object.values(found).map((text) => text.length)).toEqual(sizes);
    expect(Object.keys(found)[1]).toBe("data/1.txt");
  });

  it("keeps long names and those in other letters", async () => {
    const names = ["报告/größer.txt", `${"deep/".repeat(30)}file.txt`, 'a b\'s "c".txt'];
    const found = await unpacked(names.map((path) => ({ path, content: new Blob([path]) })));
    expect(found).toEqual(Object.fromEntries(names.map((name) => [name, name])));
  });

  it("counts a record's own length at every size", async () => {
    const names = Array.from({ length: 12 }, (_, more) => `${"n".repeat(85 + more)}ü.txt`);
    const found = await unpacked(names.map((path) => ({ path, content: new Blob(["."]) })));
    expect(Object.keys(found)).toEqual(names);
  });

  it("refuses what is outside or there twice", () => {
    const content = new Blob(["x"]);
    expect(() => packed([{ path: "../x", content }])).toThrow("../x");
    expect(() =>
      packed([
        { path: "a", content },
        { path: "./a", content },
      ]),
    ).toThrow("twice");
    expect(placed("/workspace/a//b/./c")).toBe("a/b/c");
    expect(placed("/workspace")).toBeNull();
  });
});
