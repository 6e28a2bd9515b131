import { render, screen } from "@testing-library/react";
import i18next from "i18next";
import { afterAll, expect, it } from "vitest";
import { chooseLanguage, type Language } from "@/i18n";
import { ShortcutsDialog } from "./ShortcutsDialog";

afterAll(() => chooseLanguage("en"));

it.each(["en", "zh"] as Language[])("names every page and shows no translation key (%s)", async (language) => {
  await chooseLanguage(language);
  const { unmount } = render(<ShortcutsDialog open onClose={() => undefined} />);
  const text = (await screen.findByRole("dialog")).textContent ?? "";
  expect(text).not.toMatch(/shell\.|places\./);
  for (const key of [
    "shell.places.health",
    "shell.shortcuts.decide",
    "shell.shortcuts.stop",
    "shell.shortcuts.otherChat",
  ])
    expect(text).toContain(i18next.t(key));
  unmount();
});
