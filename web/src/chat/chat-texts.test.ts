import { describe, expect, it } from "vitest";
import en from "@/i18n/en/chat.json";
import zh from "@/i18n/zh/chat.json";

type Words = { [name: string]: string | Words };

function flat(words: Words, before = ""): Record<string, string> {
  return Object.entries(words).reduce<Record<string, string>>((all, [name, value]) => {
    if (typeof value === "string") return Object.assign(all, { [before + name]: value });
    return Object.assign(all, flat(value, `${before}${name}.`));
  }, {});
}

const holes = (text: string | undefined) =>
  [...(text ?? "").matchAll(/\{\{(\w+)\}\}/g)].map((found) => found[1]).sort();

describe("texts of chats", () => {
  const english = flat(en);
  const chinese = flat(zh);

  it("exist in Chinese with the same placeholders", () => {
    for (const [name, text] of Object.entries(english)) {
      expect(chinese, name).toHaveProperty([name]);
      expect(holes(chinese[name]), name).toEqual(holes(text));
    }
  });

  it("are used, and all used ones exist", () => {
    const sources = import.meta.glob<string>("../{chat,shell}/**/*.{ts,tsx}", {
      query: "?raw",
      import: "default",
      eager: true,
    });
    const code = Object.entries(sources)
      .filter(([path]) => !path.includes(".test."))
      .map(([, text]) => text)
      .join("\n");
    const asked = new Set([...code.matchAll(/"chat\.([\w.]+)"/g)].map((found) => found[1] ?? ""));
    const rooted = [...code.matchAll(/`chat\.([\w.]+?)[._]?\$\{/g)].map((found) => found[1] ?? "");
    const bare = new Set(Object.keys(english).map((name) => name.replace(/_(one|other)$/, "")));
    const keys = /^(read|draft|setup|list|plan)(\.|$)/;
    expect([...asked].filter((name) => !bare.has(name) && !keys.test(name))).toEqual([]);
    const unused = [...bare].filter(
      (name) => !asked.has(name) && !rooted.some((root) => name.startsWith(`${root}.`) || name.startsWith(`${root}_`)),
    );
    expect(unused).toEqual([]);
  });
});
