import { expect, it } from "vitest";
import { keysymsOf } from "./keysyms";

it("has a key for every letter, and none for what is no letter", () => {
  expect(keysymsOf("aü€\r\n\t\u0007")).toEqual([0x61, 0xfc, 0x010020ac, 0xff0d, 0xff09]);
});
