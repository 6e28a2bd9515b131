import { act, renderHook } from "@testing-library/react";
import { beforeEach, expect, it } from "vitest";
import { useSearchParams } from "./useSearchParams";

beforeEach(() => window.history.replaceState(null, "", "/"));

it("returns set values unchanged", () => {
  const { result } = renderHook(() => useSearchParams());
  const path = "d <b>x/p&q?#%25+ü.html";
  act(() => result.current[1]({ path }));
  expect(result.current[0].get("path")).toBe(path);
  act(() =>
    result.current[1]((params) => {
      params.set("tab", "files");
      return params;
    }),
  );
  expect(result.current[0].get("path")).toBe(path);
  expect(result.current[0].get("tab")).toBe("files");
  act(() => result.current[1]({}));
  expect(window.location.href.endsWith("/")).toBe(true);
});
