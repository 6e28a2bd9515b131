import { render, screen } from "@testing-library/react";
import i18next from "i18next";
import { afterAll, expect, it } from "vitest";
import { choose, type Language } from "@/i18n";
import { Shortcuts } from "./Shortcuts";

afterAll(() => choose("en"));

it.each(["en", "zh"] as Language[])("names every page and shows no translation key (%s)", async (language) => {
  await choose(language);
  const { unmount } = render(<Shortcuts open onClose={() => undefined} />);
  const text = (await screen.findByRole("dialog")).textContent ?? "";
  expect(text).not.toMatch(/shell\.|places\./);
  expect(text).toContain(i18next.t("shell.places.health"));
  unmount();
});
