import { describe, expect, it } from "vitest";
import { asked, base, flattened, placeholders } from "./keys";

type Words = Record<string, unknown>;
const english = import.meta.glob<Words>("./en/*.json", { eager: true, import: "default" });
const chinese = import.meta.glob<Words>("./zh/*.json", { eager: true, import: "default" });
const sources = import.meta.glob<string>(
  ["../**/*.{ts,tsx}", "!../**/*.test.{ts,tsx}", "!../api/schema.ts", "!./keys.ts"],
  {
    eager: true,
    query: "?raw",
    import: "default",
  },
);

/** Messages of the server need Chinese words; the server's own English is shown unless there are English words. */
const ONLY_CHINESE = /^(chat\.kindAbout|chat\.kindTitle|runs\.reason|runs\.template|runs\.because|errors\.code)\./;

const roomOf = (path: string) => path.replace(/^.*\/|\.json$/g, "");
const rooms = Object.keys(english).map(roomOf).sort();
const words = (files: Record<string, Words>, room: string) =>
  flattened(Object.entries(files).find(([path]) => roomOf(path) === room)?.[1] ?? {}, room);
const everything = Object.values(sources).join("\n");
const all = asked(everything, rooms);
const known = new Set(rooms.flatMap((room) => [...words(english, room).keys()].flatMap((key) => [key, base(key)])));

/** Plural forms differ between languages, so they count as one. */
const byBase = (found: Map<string, string>) => {
  const bases = new Map<string, Set<string>>();
  for (const [key, text] of found) {
    const marks = bases.get(base(key)) ?? new Set();
    for (const mark of placeholders(text)) marks.add(mark);
    bases.set(base(key), marks);
  }
  return bases;
};

describe("the words", () => {
  it("are there for the same rooms in every language", () => {
    expect(Object.keys(chinese).map(roomOf).sort()).toEqual(rooms);
  });
  it("are there for every key that the source asks for", () => {
    expect([...all.literal].filter((key) => !known.has(key))).toEqual([]);
  });
  it("are there for every key with gaps", () => {
    const keys = [...known, ...rooms.flatMap((room) => [...words(chinese, room).keys()])];
    const empty = all.gaps.filter((pattern) => !keys.some((key) => pattern.test(key)));
    expect(empty.map(String)).toEqual([]);
  });
});

describe.each(rooms)("the words of %s", (room) => {
  const en = words(english, room);
  const zh = words(chinese, room);
  it("are the same in both languages, with the same gaps", () => {
    const [one, other] = [
      byBase(en),
      byBase(new Map([...zh].filter(([key]) => en.has(key) || !ONLY_CHINESE.test(key)))),
    ];
    expect([...other.keys()].sort()).toEqual([...one.keys()].sort());
    for (const [key, marks] of one) expect([...(other.get(key) ?? [])].sort(), key).toEqual([...marks].sort());
  });
  it("are none of them empty", () => {
    for (const [key, text] of [...en, ...zh]) expect(text.trim(), key).not.toBe("");
  });
  it("know one and many", () => {
    for (const found of [en, zh])
      for (const key of found.keys()) if (key.endsWith("_one")) expect(found.has(`${base(key)}_other`), key).toBe(true);
  });
  it("are all used", () => {
    const unused = [...en.keys()].filter((key) => {
      // What follows the last underscore may be a number's form, or what i18next calls a context.
      const names = [key, base(key), key.replace(/_[a-z]+$/, "")];
      return !names.some((name) => all.quoted.has(name) || all.patterns.some((each) => each.test(name)));
    });
    expect(unused).toEqual([]);
  });
});

describe("finding words in source", () => {
  it("sees calls, choices within calls, other quotes and gaps", () => {
    const found = asked(
      // biome-ignore lint/suspicious/noTemplateCurlyInString: it is source code.
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
