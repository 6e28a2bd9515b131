import { expect, it } from "vitest";
import { neighbouringChat } from "./useChatShortcuts";

it("steps through the list of chats and stops at its ends", () => {
  const ids = ["a", "b", "c"];
  expect(neighbouringChat(ids, "a", 1)).toBe("b");
  expect(neighbouringChat(ids, "b", -1)).toBe("a");
  expect(neighbouringChat(ids, "a", -1)).toBeUndefined();
  expect(neighbouringChat(ids, "c", 1)).toBeUndefined();
  expect(neighbouringChat(ids, undefined, 1)).toBe("a");
  expect(neighbouringChat(ids, undefined, -1)).toBeUndefined();
  expect(neighbouringChat([], "a", 1)).toBeUndefined();
});
