import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render, screen } from "@testing-library/react";
import i18next from "i18next";
import { createRef } from "react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ApiError, api } from "@/api/client";
import { DesktopBar } from "./DesktopBar";

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

function showBar(metadata: Record<string, string>, answer?: Promise<unknown>, chatState = "running") {
  const sandbox = { id: "sb-1", status: { state: "Running" }, metadata };
  vi.spyOn(api, "get").mockImplementation((path) =>
    path.startsWith("/v1/sessions/") ? Promise.resolve({ state: chatState }) : (answer ?? Promise.resolve(sandbox)),
  );
  const noop = () => undefined;
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <DesktopBar
        sandbox="sb-1"
        frame={createRef<HTMLElement>()}
        owner={{ type: "agent" }}
        controlLoss={null}
        live
        captured={false}
        mayTouch
        busy={false}
        size="fit"
        hasNewClipboard={false}
        onSize={noop}
        onTake={noop}
        onHandBack={noop}
        onClipboard={noop}
        onKeys={noop}
      />
    </QueryClientProvider>,
  );
}

describe("the control status", () => {
  it("shows no agent in a sandbox without chat or run", async () => {
    showBar({});
    expect(await screen.findByText(i18next.t("sandboxPanel.input.noAgent"))).toBeTruthy();
    expect(screen.queryByText(i18next.t("sandboxPanel.input.agent"))).toBeNull();
  });

  it.each([
    ["is loading", () => new Promise(() => undefined)],
    ["cannot be loaded", () => Promise.reject(new ApiError(503, "UNAVAILABLE", "not now"))],
  ])("names no agent while the sandbox %s", async (_, answer) => {
    showBar({ session: "ses-1" }, answer());
    await vi.waitFor(() => expect(api.get).toHaveBeenCalled());
    await act(async () => {});
    expect(screen.getByRole("status").textContent).toBe("");
  });

  it("is empty between two turns of a chat", async () => {
    showBar({ session: "ses-1" }, undefined, "idle");
    await vi.waitFor(() => expect(api.get).toHaveBeenCalledTimes(2));
    await act(async () => {});
    expect(screen.getByRole("status").textContent).toBe("");
  });

  it.each<Record<string, string>>([{ session: "ses-1" }, { "paddock.run": "run-1" }])(
    "is the agent of a chat or run: %o",
    async (metadata) => {
      showBar(metadata);
      await vi.waitFor(() => expect(api.get).toHaveResolved());
      expect(await screen.findByText(i18next.t("sandboxPanel.input.agent"))).toBeTruthy();
      expect(screen.queryByText(i18next.t("sandboxPanel.input.noAgent"))).toBeNull();
    },
  );
});
