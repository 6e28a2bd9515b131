import { describe, expect, it } from "vitest";
import { ApiError } from "@/api/client";
import { coversAccess, hasScope } from "./account/current-user";
import { parseSignInCode } from "./account/sign-in";
import { isMissingChunk } from "./ErrorBoundary";
import { GO_TO_KEYS, takesKeys } from "./navigation/keyboard-shortcuts";
import { CONSOLE_PAGES, isWithinPath } from "./navigation/pages";
import { isOfflineError } from "./status/connection";
import { summarizeWaiting } from "./status/waiting-approvals";

describe("the shell", () => {
  it("finds the code of a link, and only that", () => {
    expect(parseSignInCode("#code=pdc_abc")).toBe("pdc_abc");
    expect(parseSignInCode("#section")).toBeNull();
    expect(parseSignInCode("#code=")).toBeNull();
  });
  it("counts as offline only without an answer of the server", () => {
    expect(isOfflineError(new ApiError(0, "UNREACHABLE", ""))).toBe(true);
    expect(isOfflineError(new ApiError(502, "HTTP_502", "Bad Gateway"))).toBe(true);
    expect(isOfflineError(new ApiError(502, "SANDBOX_GONE", ""))).toBe(false);
    expect(isOfflineError(new ApiError(503, "HOST_FULL", ""))).toBe(false);
    expect(isOfflineError(new Error("x"))).toBe(false);
  });
  it("recognizes the browsers' errors for missing chunks after an upgrade", () => {
    expect(isMissingChunk(new TypeError("Failed to fetch dynamically imported module: /assets/Runs-1.js"))).toBe(true);
    expect(isMissingChunk(new TypeError("error loading dynamically imported module: /x.js"))).toBe(true);
    expect(isMissingChunk(new TypeError("Importing a module script failed."))).toBe(true);
    expect(isMissingChunk(new Error("Unable to preload CSS for /assets/x.css"))).toBe(true);
    expect(isMissingChunk(new TypeError("x is undefined"))).toBe(false);
  });
  it("leads to the chat that has waited longest", () => {
    expect(summarizeWaiting([])).toEqual({ count: 0, path: "/chats", newest: "" });
    const items = [
      { session: "ses-2", created_at: "2026-01-02T00:00:00Z" },
      { session: "ses-1", created_at: "2026-01-01T00:00:00Z" },
    ];
    expect(summarizeWaiting(items)).toMatchObject({ count: 2, path: "/chats/ses-1" });
    expect(items[0]?.session).toBe("ses-2");
  });
  it("lets writers read, and administrators do everything", () => {
    const me = { name: "a", tenant: "t", keyId: null, subject: "1", scopes: ["runs:write"] };
    expect(hasScope(me, "runs:read")).toBe(true);
    expect(hasScope(me, "sessions:read")).toBe(false);
    expect(hasScope({ ...me, scopes: ["runs:read"] }, "runs:write")).toBe(false);
    expect(hasScope({ ...me, scopes: ["admin"] }, "keys:admin")).toBe(true);
    expect(hasScope(undefined, "runs:read")).toBe(false);
  });
  it("continues only for a user with the same access in the same tenant", () => {
    const me = { name: "a", tenant: "t", keyId: "1", subject: "1", scopes: ["runs:write"] };
    expect(coversAccess({ ...me, keyId: "2" }, me)).toBe(true);
    expect(coversAccess({ ...me, subject: "2" }, me)).toBe(false);
    expect(coversAccess({ ...me, subject: "2", scopes: ["runs:write", "tenant:all"] }, me)).toBe(true);
    expect(coversAccess({ ...me, scopes: ["admin"] }, me)).toBe(true);
    expect(coversAccess({ ...me, scopes: ["runs:read"] }, me)).toBe(false);
    expect(coversAccess({ ...me, tenant: "u", scopes: ["admin"] }, me)).toBe(false);
  });
  it("knows whether a path is within a page", () => {
    expect(isWithinPath("/runs/run-1", "/runs")).toBe(true);
    expect(isWithinPath("/runsheet", "/runs")).toBe(false);
    const paths = [...CONSOLE_PAGES.map((place) => place.path), "/"].sort();
    expect(Object.values(GO_TO_KEYS).sort()).toEqual(paths);
  });
  it("ignores keys in text fields", () => {
    expect(takesKeys(document.createElement("textarea"))).toBe(true);
    expect(takesKeys(document.createElement("canvas"))).toBe(true);
    expect(takesKeys(document.createElement("button"))).toBe(false);
  });
});
