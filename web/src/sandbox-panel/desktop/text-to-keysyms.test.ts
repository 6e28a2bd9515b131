import { expect, it } from "vitest";
import { textToKeysyms } from "./text-to-keysyms";

it("maps characters to keysyms and skips others", () => {
  expect(textToKeysyms("aü€\r\n\t\u0007")).toEqual([0x61, 0xfc, 0x010020ac, 0xff0d, 0xff09]);
});
