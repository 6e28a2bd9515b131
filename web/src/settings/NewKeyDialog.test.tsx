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

describe("a new key", () => {
  it.each(["admin", "tenant:all"])("sees everything of the tenant only with the scope %s", async (scope) => {
    vi.spyOn(api, "get").mockResolvedValue({ name: "ada", scopes: ["admin"] });
    render(
      <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
        <NewKeyDialog onClose={() => undefined} />
      </QueryClientProvider>,
    );
    const [own, all] = [i18next.t("settings.keys.seesOwn"), i18next.t("settings.keys.seesAll")];
    const checkbox = await screen.findByRole("checkbox", { name: new RegExp(`^${scope}`) });
    expect([screen.queryByText(own) !== null, screen.queryByText(all) !== null]).toEqual([true, false]);
    await userEvent.click(checkbox);
    expect([screen.queryByText(own) !== null, screen.queryByText(all) !== null]).toEqual([false, true]);
  });
});
