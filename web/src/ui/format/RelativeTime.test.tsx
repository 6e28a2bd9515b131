import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { RelativeTime } from "./formats";

afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

it("shows a change that is newer than the page as just now, not as the future", () => {
  vi.useFakeTimers({ now: new Date("2026-11-19T12:00:00Z") });
  const { rerender } = render(<RelativeTime at="2026-11-19T11:00:00Z" />);
  expect(screen.getByText("1 hr. ago")).toBeTruthy();
  vi.setSystemTime(new Date("2026-11-19T12:00:05Z"));
  rerender(<RelativeTime at="2026-11-19T12:00:05Z" />);
  expect(screen.getByText("just now")).toBeTruthy();
});
