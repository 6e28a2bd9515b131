import { describe, expect, it } from "vitest";
import { baseKey, findUsedKeys, flattenTexts, placeholders } from "./text-keys";

type Words = Record<string, unknown>;
const english = import.meta.glob<Words>("./en/*.json", { eager: true, import: "default" });
const chinese = import.meta.glob<Words>("./zh/*.json", { eager: true, import: "default" });
const sources = import.meta.glob<string>(
  ["../**/*.{ts,tsx}", "!../**/*.test.{ts,tsx}", "!../api/schema.ts", "!./text-keys.ts"],
  {
    eager: true,
    query: "?raw",
    import: "default",
  },
);

/** Server messages need Chinese texts; in English the server's own text is shown unless the console has one. */
const ONLY_CHINESE =
  /^(chat\.kindAbout|chat\.kindTitle|runs\.reason|runs\.template|runs\.because|errors\.code|errors\.text)\./;

const roomOf = (path: string) => path.replace(/^.*\/|\.json$/g, "");
const rooms = Object.keys(english).map(roomOf).sort();
const words = (files: Record<string, Words>, room: string) =>
  flattenTexts(Object.entries(files).find(([path]) => roomOf(path) === room)?.[1] ?? {}, room);
const everything = Object.values(sources).join("\n");
const all = findUsedKeys(everything, rooms);
const known = new Set(rooms.flatMap((room) => [...words(english, room).keys()].flatMap((key) => [key, baseKey(key)])));

/** Plural forms differ between languages, so they count as one. */
const byBase = (found: Map<string, string>) => {
  const bases = new Map<string, Set<string>>();
  for (const [key, text] of found) {
    const marks = bases.get(baseKey(key)) ?? new Set();
    for (const mark of placeholders(text)) marks.add(mark);
    bases.set(baseKey(key), marks);
  }
  return bases;
};

describe("the texts", () => {
  it("exist for the same namespaces in every language", () => {
    expect(Object.keys(chinese).map(roomOf).sort()).toEqual(rooms);
  });
  it("exist for every key that the source uses", () => {
    expect([...all.literal].filter((key) => !known.has(key))).toEqual([]);
  });
  it("exist for every key template", () => {
    const keys = [...known, ...rooms.flatMap((room) => [...words(chinese, room).keys()])];
    const empty = all.gaps.filter((pattern) => !keys.some((key) => pattern.test(key)));
    expect(empty.map(String)).toEqual([]);
  });
});

describe.each(rooms)("the texts of %s", (room) => {
  const en = words(english, room);
  const zh = words(chinese, room);
  it("have the same keys and placeholders in both languages", () => {
    const [one, other] = [
      byBase(en),
      byBase(new Map([...zh].filter(([key]) => en.has(key) || !ONLY_CHINESE.test(key)))),
    ];
    expect([...other.keys()].sort()).toEqual([...one.keys()].sort());
    for (const [key, marks] of one) expect([...(other.get(key) ?? [])].sort(), key).toEqual([...marks].sort());
  });
  it("are not empty", () => {
    for (const [key, text] of [...en, ...zh]) expect(text.trim(), key).not.toBe("");
  });
  it("have singular and plural", () => {
    for (const found of [en, zh])
      for (const key of found.keys())
        if (key.endsWith("_one")) expect(found.has(`${baseKey(key)}_other`), key).toBe(true);
  });
  it("are all used", () => {
    const unused = [...en.keys()].filter((key) => {
      // The suffix may be a plural form or an i18next context.
      const names = [key, baseKey(key), key.replace(/_[a-z]+$/, "")];
      return !names.some((name) => all.quoted.has(name) || all.patterns.some((each) => each.test(name)));
    });
    expect(unused).toEqual([]);
  });
});

describe("finding keys in source", () => {
  it("finds calls, conditionals, quotes and templates", () => {
    const found = findUsedKeys(
      // biome-ignore lint/suspicious/noTemplateCurlyInString: the string is source code.
      't("a.b"); t(x ? "a.c" : "a.d", { n: 1 }); say({ key: "a.e" }); t(`a.f.${g({ h: 1 })}.i`); "z.y"',
      ["a"],
    );
    expect([...found.literal]).toEqual(["a.b", "a.c", "a.d"]);
    expect(found.quoted.has("a.e")).toBe(true);
    expect(found.quoted.has("z.y")).toBe(false);
    expect(found.patterns.map((each) => each.test("a.f.anything.i"))).toEqual([true]);
    expect(found.patterns.map((each) => each.test("a.f.anything.j"))).toEqual([false]);
  });
});
