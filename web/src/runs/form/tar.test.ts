import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { normalizeTarPath, packTar, type TarEntry } from "./tar";

const directories: string[] = [];

afterEach(() => {
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true });
});

/** Content by path, as extracted by `tar`. */
async function unpacked(entries: TarEntry[]): Promise<Record<string, string>> {
  const directory = mkdtempSync(join(tmpdir(), "tar-"));
  directories.push(directory);
  const file = join(directory, "made.tar");
  writeFileSync(file, new Uint8Array(await packTar(entries).arrayBuffer()));
  const listing = execFileSync("tar", ["--quoting-style=literal", "-tf", file], { encoding: "utf8" });
  execFileSync("tar", ["-xf", file, "-C", directory]);
  const names = listing.split("\n").filter(Boolean);
  return Object.fromEntries(names.map((name) => [name, readFileSync(join(directory, name), "utf8")]));
}

describe("a tar archive", () => {
  it("is readable by tar at any size", async () => {
    const sizes = [0, 1, 511, 512, 513, 5000];
    const entries = sizes.map((size) => ({ path: `data/${size}.txt`, content: new Blob(["x".repeat(size)]) }));
    const found = await unpacked(entries);
    expect(Object.values(found).map((text) => text.length)).toEqual(sizes);
    expect(Object.keys(found)[1]).toBe("data/1.txt");
  });

  it("keeps long and non-ASCII names", async () => {
    const names = ["报告/größer.txt", `${"deep/".repeat(30)}file.txt`, 'a b\'s "c".txt'];
    const found = await unpacked(names.map((path) => ({ path, content: new Blob([path]) })));
    expect(found).toEqual(Object.fromEntries(names.map((name) => [name, name])));
  });

  it("counts a record's own length", async () => {
    const names = Array.from({ length: 12 }, (_, more) => `${"n".repeat(85 + more)}ü.txt`);
    const found = await unpacked(names.map((path) => ({ path, content: new Blob(["."]) })));
    expect(Object.keys(found)).toEqual(names);
  });

  it("rejects outside and duplicate paths", () => {
    const content = new Blob(["x"]);
    expect(() => packTar([{ path: "../x", content }])).toThrow("../x");
    expect(() =>
      packTar([
        { path: "a", content },
        { path: "./a", content },
      ]),
    ).toThrow("twice");
    expect(normalizeTarPath("/workspace/a//b/./c")).toBe("a/b/c");
    expect(normalizeTarPath("/workspace")).toBeNull();
  });
});
