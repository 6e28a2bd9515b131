import { describe, expect, it } from "vitest";
import { ApiError } from "@/api/client";
import { waiting } from "./approvals";
import { meansAway } from "./connection";
import { isMissingPart } from "./ErrorBoundary";
import { covers, may } from "./me";
import { isWithin, PLACES } from "./places";
import { GOING, takesKeys } from "./shortcuts";
import { codeIn } from "./signing";

describe("the shell", () => {
  it("finds the code of a link, and only that", () => {
    expect(codeIn("#code=pdc_abc")).toBe("pdc_abc");
    expect(codeIn("#section")).toBeNull();
    expect(codeIn("#code=")).toBeNull();
  });
  it("takes a server for away only if nobody of ours answered", () => {
    expect(meansAway(new ApiError(0, "UNREACHABLE", ""))).toBe(true);
    expect(meansAway(new ApiError(502, "HTTP_502", "Bad Gateway"))).toBe(true);
    expect(meansAway(new ApiError(502, "SANDBOX_GONE", ""))).toBe(false);
    expect(meansAway(new ApiError(503, "HOST_FULL", ""))).toBe(false);
    expect(meansAway(new Error("x"))).toBe(false);
  });
  it("knows a part of the console that is gone after an upgrade, as browsers say it", () => {
    expect(isMissingPart(new TypeError("Failed to fetch dynamically imported module: /assets/Runs-1.js"))).toBe(true);
    expect(isMissingPart(new TypeError("error loading dynamically imported module: /x.js"))).toBe(true);
    expect(isMissingPart(new TypeError("Importing a module script failed."))).toBe(true);
    expect(isMissingPart(new Error("Unable to preload CSS for /assets/x.css"))).toBe(true);
    expect(isMissingPart(new TypeError("x is undefined"))).toBe(false);
  });
  it("leads to the chat that has waited longest", () => {
    expect(waiting([])).toEqual({ count: 0, path: "/chats", newest: "" });
    const items = [
      { session: "ses-2", created_at: "2026-01-02T00:00:00Z" },
      { session: "ses-1", created_at: "2026-01-01T00:00:00Z" },
    ];
    expect(waiting(items)).toMatchObject({ count: 2, path: "/chats/ses-1" });
    expect(items[0]?.session).toBe("ses-2");
  });
  it("lets those read who may write, and administrators do everything", () => {
    const me = { name: "a", tenant: "t", keyId: null, subject: "1", scopes: ["runs:write"] };
    expect(may(me, "runs:read")).toBe(true);
    expect(may(me, "sessions:read")).toBe(false);
    expect(may({ ...me, scopes: ["runs:read"] }, "runs:write")).toBe(false);
    expect(may({ ...me, scopes: ["admin"] }, "keys:admin")).toBe(true);
    expect(may(undefined, "runs:read")).toBe(false);
  });
  it("lets go on who may see as much in the same tenant, and nobody else", () => {
    const me = { name: "a", tenant: "t", keyId: "1", subject: "1", scopes: ["runs:write"] };
    expect(covers({ ...me, keyId: "2" }, me)).toBe(true);
    expect(covers({ ...me, subject: "2" }, me)).toBe(false);
    expect(covers({ ...me, subject: "2", scopes: ["runs:write", "tenant:all"] }, me)).toBe(true);
    expect(covers({ ...me, scopes: ["admin"] }, me)).toBe(true);
    expect(covers({ ...me, scopes: ["runs:read"] }, me)).toBe(false);
    expect(covers({ ...me, tenant: "u", scopes: ["admin"] }, me)).toBe(false);
  });
  it("knows what is within a place", () => {
    expect(isWithin("/runs/run-1", "/runs")).toBe(true);
    expect(isWithin("/runsheet", "/runs")).toBe(false);
    const paths = [...PLACES.map((place) => place.path), "/"].sort();
    expect(Object.values(GOING).sort()).toEqual(paths);
  });
  it("leaves keys to who types", () => {
    expect(takesKeys(document.createElement("textarea"))).toBe(true);
    expect(takesKeys(document.createElement("canvas"))).toBe(true);
    expect(takesKeys(document.createElement("button"))).toBe(false);
  });
});
