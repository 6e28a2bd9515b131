import { cleanup, render, screen } from "@testing-library/react";
import i18next from "i18next";
import { afterEach, expect, it } from "vitest";
import { chooseLanguage, type Language } from "@/i18n";
import { ImageBuildProgress } from "./ImageBuildProgress";

afterEach(async () => {
  cleanup();
  await chooseLanguage("en");
});

it.each([
  ["en", "step 2 of 6 (40 %)"],
  ["zh", "第 2 步，共 6 步（40%）"],
] as [Language, string][])("shows the step, the share and a bar (%s)", async (language, text) => {
  await chooseLanguage(language);
  render(
    <ImageBuildProgress building={{ image: "code", step: "apt", fraction: 0.4, step_number: 2, step_count: 6 }} />,
  );
  const bar = screen.getByRole<HTMLProgressElement>("progressbar");
  expect([bar.value, bar.max]).toEqual([0.4, 1]);
  expect(bar.getAttribute("aria-labelledby")).toBeTruthy();
  expect(document.body.textContent).toContain(text);
});

it("shows an indefinite bar while nothing is known", () => {
  render(<ImageBuildProgress building={{ image: "code", step: "waiting for another build" }} />);
  expect(screen.getByRole("progressbar").hasAttribute("value")).toBe(false);
  expect(document.body.textContent).toContain(i18next.t("chat.doing.building", { image: "code" }));
});
