import { describe, expect, it } from "vitest";
import { ApiError } from "@/api/client";
import { coversAccess, hasScope } from "./account/current-user";
import { parseSignInCode } from "./account/sign-in";
import { isMissingChunkError } from "./ErrorBoundary";
import { capturesKeyboard, GO_TO_KEYS } from "./navigation/keyboard-shortcuts";
import { CONSOLE_PAGES, isWithinPath } from "./navigation/pages";
import { isOfflineError } from "./status/server-connection";
import { summarizeWaitingApprovals } from "./status/waiting-approvals";

describe("the shell", () => {
  it("parses the sign-in code of a link", () => {
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
    expect(isMissingChunkError(new TypeError("Failed to fetch dynamically imported module: /assets/Runs-1.js"))).toBe(
      true,
    );
    expect(isMissingChunkError(new TypeError("error loading dynamically imported module: /x.js"))).toBe(true);
    expect(isMissingChunkError(new TypeError("Importing a module script failed."))).toBe(true);
    expect(isMissingChunkError(new Error("Unable to preload CSS for /assets/x.css"))).toBe(true);
    expect(isMissingChunkError(new TypeError("x is undefined"))).toBe(false);
  });
  it("opens the chat with the oldest pending approval", () => {
    expect(summarizeWaitingApprovals([])).toEqual({ count: 0, path: "/chats", newest: "" });
    const items = [
      { session: "ses-2", created_at: "2026-01-02T00:00:00Z" },
      { session: "ses-1", created_at: "2026-01-01T00:00:00Z" },
    ];
    expect(summarizeWaitingApprovals(items)).toMatchObject({ count: 2, path: "/chats/ses-1" });
    expect(items[0]?.session).toBe("ses-2");
  });
  it("grants reading to writers, and everything to administrators", () => {
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
  it("detects whether a path is within a page", () => {
    expect(isWithinPath("/runs/run-1", "/runs")).toBe(true);
    expect(isWithinPath("/runsheet", "/runs")).toBe(false);
    const paths = [...CONSOLE_PAGES.map((page) => page.path), "/"].sort();
    expect(Object.values(GO_TO_KEYS).sort()).toEqual(paths);
  });
  it("ignores keys in text fields", () => {
    expect(capturesKeyboard(document.createElement("textarea"))).toBe(true);
    expect(capturesKeyboard(document.createElement("canvas"))).toBe(true);
    expect(capturesKeyboard(document.createElement("button"))).toBe(false);
  });
});
