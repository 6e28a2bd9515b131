import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { Markdown } from "./Markdown";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function renderMarkdown() {
  const fetched = vi.fn(async () => new Response("", { status: 404 }));
  vi.stubGlobal("fetch", fetched);
  return fetched;
}

it("fetches only resolved pictures", async () => {
  const fetched = renderMarkdown();
  const text = "![mine](chart.svg) ![key](paddock:/v1/keys) ![other](https://example.com/a.png) ![own](/v1/keys)";
  render(<Markdown text={text} pictures={(source) => (source === "chart.svg" ? "/v1/place/chart.svg" : null)} />);
  await screen.findByText("mine");
  expect(fetched.mock.calls.map(([address]: unknown[]) => address)).toEqual(["/v1/place/chart.svg"]);
  expect(document.querySelector("img")).toBeNull();
});

it("runs nothing and shows HTML as text", () => {
  renderMarkdown();
  render(<Markdown text={'<img src=x onerror="alert(1)"> [go](javascript:alert(1)) <script>alert(2)</script>'} />);
  expect(document.querySelector("img, script")).toBeNull();
  expect(screen.getByText("go").getAttribute("href")).toBe("");
});
