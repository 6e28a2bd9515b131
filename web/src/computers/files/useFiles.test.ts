import { expect, it } from "vitest";
import { freeName, safeName } from "./useFiles";

it("finds a name that is free", () => {
  expect(freeName("a.txt", new Set())).toBe("a.txt");
  expect(freeName("a.txt", new Set(["a.txt", "a (2).txt"]))).toBe("a (3).txt");
  expect(freeName(".env", new Set([".env"]))).toBe(".env (2)");
});

it("saves under names that do no harm", () => {
  expect(safeName('/w/a:b"<img>\n\u202Etxt.exe')).toBe("a_b__img_↵⟨202E⟩txt.exe");
  expect(safeName("/")).toBe("_");
});
