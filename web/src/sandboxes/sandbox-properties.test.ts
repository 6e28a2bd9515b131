import { describe, expect, it } from "vitest";
import {
  availableSandboxActions,
  extendedExpiry,
  matchesSandboxFilter,
  type Sandbox,
  sandboxOrigin,
  sandboxOwner,
  sandboxStatesForFilter,
  sandboxTitle,
  sandboxUserLabels,
} from "./sandbox-properties";

function sandbox(more: Partial<Sandbox> = {}, state: Sandbox["status"]["state"] = "Running"): Sandbox {
  return {
    id: "sb-1",
    status: { state },
    metadata: {},
    network: [],
    createdAt: "2026-01-01T00:00:00Z",
    visibility: "private",
    ...more,
  };
}

describe("a sandbox", () => {
  it("shows its chat or run, and its other labels", () => {
    expect(sandboxOwner(sandbox({ metadata: { session: "ses-1" } }))).toEqual({
      type: "chat",
      id: "ses-1",
      path: "/chats/ses-1",
    });
    const run = sandbox({ metadata: { name: "mine", "paddock.run": "run-1", "paddock.task": "hello" } });
    expect(sandboxOwner(run)?.path).toBe("/runs/run-1");
    expect(sandboxUserLabels(run)).toEqual([["paddock.task", "hello"]]);
    expect(sandboxOwner(sandbox())).toBeNull();
  });
  it("has its name as its title, else its id", () => {
    expect(sandboxTitle(sandbox({ metadata: { name: "first" } }))).toBe("first");
    expect(sandboxTitle(sandbox())).toBe("sb-1");
  });
  it("shows its image or snapshot name", () => {
    expect(sandboxOrigin(sandbox({ image: { uri: "code" } }))).toBe("code");
    const fromSnapshot = sandbox({ snapshotId: "snap-1" });
    expect(sandboxOrigin(fromSnapshot)).toBe("snap-1");
    expect(sandboxOrigin(fromSnapshot, { "snap-1": "after set-up" })).toBe("after set-up");
  });
  it("offers only what its state allows", () => {
    expect(availableSandboxActions(sandbox())).toEqual(["pause", "snapshot", "delete"]);
    expect(availableSandboxActions(sandbox({ expiresAt: "2026-01-01T01:00:00Z" }, "Paused"))).toEqual([
      "resume",
      "snapshot",
      "renew",
      "delete",
    ]);
    expect(availableSandboxActions(sandbox({}, "Pending"))).toEqual(["delete"]);
    expect(availableSandboxActions(sandbox({}, "Terminated"))).toEqual([]);
    expect(availableSandboxActions(sandbox({ expiresAt: "2026-01-01T01:00:00Z" }, "Failed"))).toEqual(["delete"]);
  });
  it("is extended by one hour, from its expiry or from now", () => {
    const now = new Date("2026-01-01T00:30:00Z");
    expect(extendedExpiry(sandbox({ expiresAt: "2026-01-01T01:00:00Z" }), now)).toBe("2026-01-01T02:00:00.000Z");
    expect(extendedExpiry(sandbox({ expiresAt: "2026-01-01T00:10:00Z" }), now)).toBe("2026-01-01T01:30:00.000Z");
  });
  it("is found by its id, image, kind and labels", () => {
    const one = sandbox({
      image: { uri: "desktop" },
      extensions: { "paddock.kind": "linux" },
      metadata: { team: "Search" },
    });
    for (const text of ["SB-1", "desk", "linux", "team", "search", ""])
      expect(matchesSandboxFilter(one, { state: "", kind: "", text })).toBe(true);
    expect(matchesSandboxFilter(one, { state: "", kind: "", text: "windows" })).toBe(false);
    expect(matchesSandboxFilter(one, { state: "", kind: "code", text: "" })).toBe(false);
  });
  it("is filtered by state, live ones by default", () => {
    expect(sandboxStatesForFilter("")).toContain("Running");
    expect(sandboxStatesForFilter("")).not.toContain("Failed");
    expect(sandboxStatesForFilter("ended")).toEqual(["Terminated", "Failed"]);
    expect(sandboxStatesForFilter("Paused")).toEqual(["Paused"]);
    expect(sandboxStatesForFilter("all")).toEqual([]);
  });
});
