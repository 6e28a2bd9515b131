import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { chooseLanguage } from "@/i18n";
import { SandboxEndedNotice } from "./SandboxViews";

afterEach(async () => {
  cleanup();
  await chooseLanguage("en");
});

describe("the notice of a sandbox that has ended", () => {
  it("has the reason in English", () => {
    render(<SandboxEndedNotice condition={{ state: "gone", reason: "its lifetime was over" }} />);
    expect(screen.getByText("its lifetime was over")).toBeTruthy();
  });

  it.each(["its lifetime was over", "idle", "deleted", "out_of_memory"])(
    "has no English in Chinese: %s",
    async (reason) => {
      await chooseLanguage("zh");
      const { container } = render(<SandboxEndedNotice condition={{ state: "gone", reason }} />);
      expect(container.textContent).toMatch(/\p{Script=Han}/u);
      expect(container.textContent).not.toMatch(/[a-z]{3}/);
    },
  );
});
