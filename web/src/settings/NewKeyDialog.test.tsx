import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import i18next from "i18next";
import { afterEach, describe, expect, it, vi } from "vitest";
import { api } from "@/api/client";
import { NewKeyDialog } from "./NewKeyDialog";

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

function showDialog(scopes: string[]) {
  vi.spyOn(api, "get").mockResolvedValue({ name: "ada", tenant: "default", scopes });
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <NewKeyDialog onClose={() => undefined} />
    </QueryClientProvider>,
  );
}

describe("a new key", () => {
  it.each(["admin", "tenant:all"])("sees everything of the tenant only with the scope %s", async (scope) => {
    showDialog(["admin"]);
    const [own, all] = [i18next.t("settings.keys.seesOwn"), i18next.t("settings.keys.seesAll")];
    const checkbox = await screen.findByRole("checkbox", { name: new RegExp(`^${scope}`) });
    expect([screen.queryByText(own) !== null, screen.queryByText(all) !== null]).toEqual([true, false]);
    await userEvent.click(checkbox);
    expect([screen.queryByText(own) !== null, screen.queryByText(all) !== null]).toEqual([false, true]);
  });

  it("can belong to another tenant if an administrator creates it", async () => {
    const post = vi.spyOn(api, "post").mockResolvedValue({ name: "ann", secret: "pdk_1" });
    showDialog(["admin"]);
    const field = await screen.findByRole("textbox", { name: i18next.t("settings.keys.tenant") });
    const button = screen.getByRole<HTMLButtonElement>("button", { name: i18next.t("settings.keys.make") });
    await userEvent.type(screen.getByRole("textbox", { name: i18next.t("settings.keys.name") }), "ann");
    await userEvent.type(field, "team a");
    expect([button.disabled, screen.queryByText(i18next.t("settings.keys.tenantWrong")) !== null]).toEqual([
      true,
      true,
    ]);
    await userEvent.clear(field);
    await userEvent.type(field, "team-a");
    expect(screen.getByText(i18next.t("settings.keys.seesOther", { tenant: "team-a" }))).toBeTruthy();
    await userEvent.click(button);
    expect(post).toHaveBeenCalledWith("/v1/keys", expect.objectContaining({ name: "ann", tenant: "team-a" }));
  });

  it("belongs to the tenant of its creator without the scope admin", async () => {
    showDialog(["keys:admin", "sessions:write"]);
    await screen.findByRole("checkbox", { name: /^keys:admin/ });
    expect(screen.queryByRole("textbox", { name: i18next.t("settings.keys.tenant") })).toBeNull();
  });
});
