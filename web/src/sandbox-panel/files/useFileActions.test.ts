import { expect, it } from "vitest";
import { safeFileName, unusedFileName } from "./useFileActions";

it("finds an unused name", () => {
  expect(unusedFileName("a.txt", new Set())).toBe("a.txt");
  expect(unusedFileName("a.txt", new Set(["a.txt", "a (2).txt"]))).toBe("a (3).txt");
  expect(unusedFileName(".env", new Set([".env"]))).toBe(".env (2)");
});

it("sanitizes file names", () => {
  expect(safeFileName('/w/a:b"<img>\n\u202Etxt.exe')).toBe("a_b__img_↵⟨202E⟩txt.exe");
  expect(safeFileName("/")).toBe("_");
});
