import { describe, expect, it } from "vitest";
import { findUsedKeys, flattenTexts, pluralBaseKey, textPlaceholders } from "./text-keys";

type Texts = Record<string, unknown>;
const english = import.meta.glob<Texts>("./en/*.json", { eager: true, import: "default" });
const chinese = import.meta.glob<Texts>("./zh/*.json", { eager: true, import: "default" });
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

const namespaceOf = (path: string) => path.replace(/^.*\/|\.json$/g, "");
const namespaces = Object.keys(english).map(namespaceOf).sort();
const namespaceTexts = (files: Record<string, Texts>, namespace: string) =>
  flattenTexts(Object.entries(files).find(([path]) => namespaceOf(path) === namespace)?.[1] ?? {}, namespace);
const allSource = Object.values(sources).join("\n");
const usedKeys = findUsedKeys(allSource, namespaces);
const knownKeys = new Set(
  namespaces.flatMap((namespace) =>
    [...namespaceTexts(english, namespace).keys()].flatMap((key) => [key, pluralBaseKey(key)]),
  ),
);

/** Plural forms differ between languages, so they count as one. */
const byBase = (found: Map<string, string>) => {
  const bases = new Map<string, Set<string>>();
  for (const [key, text] of found) {
    const marks = bases.get(pluralBaseKey(key)) ?? new Set();
    for (const mark of textPlaceholders(text)) marks.add(mark);
    bases.set(pluralBaseKey(key), marks);
  }
  return bases;
};

describe("the texts", () => {
  it("exist for the same namespaces in every language", () => {
    expect(Object.keys(chinese).map(namespaceOf).sort()).toEqual(namespaces);
  });
  it("exist for every key that the source uses", () => {
    expect([...usedKeys.literal].filter((key) => !knownKeys.has(key))).toEqual([]);
  });
  it("exist for every key template", () => {
    const keys = [...knownKeys, ...namespaces.flatMap((namespace) => [...namespaceTexts(chinese, namespace).keys()])];
    const empty = usedKeys.gaps.filter((pattern) => !keys.some((key) => pattern.test(key)));
    expect(empty.map(String)).toEqual([]);
  });
});

describe.each(namespaces)("the texts of %s", (namespace) => {
  const en = namespaceTexts(english, namespace);
  const zh = namespaceTexts(chinese, namespace);
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
        if (key.endsWith("_one")) expect(found.has(`${pluralBaseKey(key)}_other`), key).toBe(true);
  });
  it("are all used", () => {
    const unused = [...en.keys()].filter((key) => {
      // The suffix may be a plural form or an i18next context.
      const names = [key, pluralBaseKey(key), key.replace(/_[a-z]+$/, "")];
      return !names.some((name) => usedKeys.quoted.has(name) || usedKeys.patterns.some((each) => each.test(name)));
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
