import { describe, expect, it } from "vitest";
import en from "@/i18n/en/chat.json";
import zh from "@/i18n/zh/chat.json";

type TextTree = { [name: string]: string | TextTree };

function flattenTexts(texts: TextTree, before = ""): Record<string, string> {
  return Object.entries(texts).reduce<Record<string, string>>((all, [name, value]) => {
    if (typeof value === "string") return Object.assign(all, { [before + name]: value });
    return Object.assign(all, flattenTexts(value, `${before}${name}.`));
  }, {});
}

const placeholders = (text: string | undefined) =>
  [...(text ?? "").matchAll(/\{\{(\w+)\}\}/g)].map((found) => found[1]).sort();

describe("texts of chats", () => {
  const english = flattenTexts(en);
  const chinese = flattenTexts(zh);

  it("exist in Chinese with the same placeholders", () => {
    for (const [name, text] of Object.entries(english)) {
      expect(chinese, name).toHaveProperty([name]);
      expect(placeholders(chinese[name]), name).toEqual(placeholders(text));
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
    const usedKeys = new Set([...code.matchAll(/"chat\.([\w.]+)"/g)].map((found) => found[1] ?? ""));
    const keyPrefixes = [...code.matchAll(/`chat\.([\w.]+?)[._]?\$\{/g)].map((found) => found[1] ?? "");
    const baseKeys = new Set(Object.keys(english).map((name) => name.replace(/_(one|other)$/, "")));
    const keys = /^(read|draft|setup|list|plan)(\.|$)/;
    expect([...usedKeys].filter((name) => !baseKeys.has(name) && !keys.test(name))).toEqual([]);
    const unused = [...baseKeys].filter(
      (name) =>
        !usedKeys.has(name) && !keyPrefixes.some((root) => name.startsWith(`${root}.`) || name.startsWith(`${root}_`)),
    );
    expect(unused).toEqual([]);
  });
});
