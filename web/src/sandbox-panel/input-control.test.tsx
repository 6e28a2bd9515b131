import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, renderHook, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { api } from "@/api/client";
import { sleep } from "@/api/event-stream";
import { inputOwner, useInputControl } from "./input-control";
import { viewerId } from "./viewer-id";

const holder = (viewer: string, name: string) => ({ viewer, name, since: "2026-01-01T00:00:00Z" });

describe("inputOwner", () => {
  it("is the agent by default", () => {
    expect(inputOwner(null, "tab-1", "Ada")).toEqual({ type: "agent" });
  });

  it("identifies the own tab by id, not by name", () => {
    expect(inputOwner(holder("tab-1", "local"), "tab-1", "Ada")).toEqual({ type: "me" });
    expect(inputOwner(holder("tab-2", "Ada"), "tab-1", "Ada")).toEqual({ type: "other", name: "Ada", sameUser: true });
    expect(inputOwner(holder("tab-2", "Bob"), "tab-1", "Ada")).toEqual({ type: "other", name: "Bob", sameUser: false });
  });
});

describe("useInputControl", () => {
  afterEach(() => {
    cleanup();
    vi.restoreAllMocks();
  });

  it("ignores an older response after taking control", async () => {
    let answer = (_: unknown) => {};
    let requestCount = 0;
    vi.spyOn(api, "get").mockImplementation(async (path) => {
      if (!String(path).endsWith("/input")) return { name: "Ada", scopes: [] };
      requestCount += 1;
      return requestCount === 1 ? { holder: null } : new Promise((resolve) => (answer = resolve));
    });
    vi.spyOn(api, "post").mockResolvedValue({ holder: holder(viewerId(), "Ada") });
    const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
    const wrapper = ({ children }: { children: ReactNode }) => (
      <QueryClientProvider client={queries}>{children}</QueryClientProvider>
    );
    const { result } = renderHook(() => useInputControl("box-1", true), { wrapper });
    await waitFor(() => expect(requestCount).toBe(1));
    act(() => result.current.refresh());
    await waitFor(() => expect(requestCount).toBe(2));
    await act(async () => void (await result.current.take()));
    await waitFor(() => expect(result.current.owner).toEqual({ type: "me" }));
    await act(async () => {
      answer({ holder: null });
      await sleep(20);
    });
    expect(result.current.owner).toEqual({ type: "me" });
    queries.clear();
  });
});
