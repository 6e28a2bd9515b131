import { afterEach, beforeAll, expect, it } from "vitest";
import { chooseLanguage, initLanguage } from "@/i18n";
import { continueNoteText } from "./continue-note";

beforeAll(initLanguage);
afterEach(() => chooseLanguage("en"));

it.each([
  ["en", "Continued"],
  ["zh", "已继续"],
] as const)("people see that the agent continues, not the note to the model: %s", async (language, text) => {
  await chooseLanguage(language);
  expect(continueNoteText("Go on from where you were.")).toBe(text);
  expect(continueNoteText("[note] Go on from where you were.")).toBe(text);
  expect(continueNoteText("Please write: Go on from where you were.")).toBeNull();
});
