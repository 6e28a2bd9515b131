import { describe, expect, it } from "vitest";
import { anHourMore, deedsOf, labelsOf, originOf, ownerOf, passes, type Sandbox, statesOf, titleOf } from "./facts";

function box(more: Partial<Sandbox> = {}, state: Sandbox["status"]["state"] = "Running"): Sandbox {
  return {
    id: "sb-1",
    status: { state },
    metadata: {},
    createdAt: "2026-01-01T00:00:00Z",
    visibility: "private",
    ...more,
  };
}

describe("a sandbox", () => {
  it("names the chat or the run it was made for, and what else was written on it", () => {
    expect(ownerOf(box({ metadata: { session: "ses-1" } }))).toEqual({
      type: "chat",
      id: "ses-1",
      path: "/chats/ses-1",
    });
    const run = box({ metadata: { name: "mine", "paddock.run": "run-1", "paddock.task": "hello" } });
    expect(ownerOf(run)?.path).toBe("/runs/run-1");
    expect(labelsOf(run)).toEqual([["paddock.task", "hello"]]);
    expect(ownerOf(box())).toBeNull();
  });
  it("has its name as its title, else its id", () => {
    expect(titleOf(box({ metadata: { name: "first" } }))).toBe("first");
    expect(titleOf(box())).toBe("sb-1");
  });
  it("tells what it was made from, a snapshot by its name", () => {
    expect(originOf(box({ image: { uri: "code" } }))).toBe("code");
    const made = box({ snapshotId: "snap-1" });
    expect(originOf(made)).toBe("snap-1");
    expect(originOf(made, { "snap-1": "after set-up" })).toBe("after set-up");
  });
  it("offers only what its state allows", () => {
    expect(deedsOf(box())).toEqual(["pause", "snapshot", "delete"]);
    expect(deedsOf(box({ expiresAt: "2026-01-01T01:00:00Z" }, "Paused"))).toEqual([
      "resume",
      "snapshot",
      "renew",
      "delete",
    ]);
    expect(deedsOf(box({}, "Pending"))).toEqual(["delete"]);
    expect(deedsOf(box({}, "Terminated"))).toEqual([]);
    expect(deedsOf(box({ expiresAt: "2026-01-01T01:00:00Z" }, "Failed"))).toEqual(["delete"]);
  });
  it("lives an hour longer, from its end or from now", () => {
    const now = new Date("2026-01-01T00:30:00Z");
    expect(anHourMore(box({ expiresAt: "2026-01-01T01:00:00Z" }), now)).toBe("2026-01-01T02:00:00.000Z");
    expect(anHourMore(box({ expiresAt: "2026-01-01T00:10:00Z" }), now)).toBe("2026-01-01T01:30:00.000Z");
  });
  it("is found by its id, image, kind and labels", () => {
    const one = box({
      image: { uri: "desktop" },
      extensions: { "paddock.kind": "linux" },
      metadata: { team: "Search" },
    });
    for (const text of ["SB-1", "desk", "linux", "team", "search", ""])
      expect(passes(one, { state: "", kind: "", text })).toBe(true);
    expect(passes(one, { state: "", kind: "", text: "windows" })).toBe(false);
    expect(passes(one, { state: "", kind: "code", text: "" })).toBe(false);
  });
  it("is asked for by state, those that live unless told otherwise", () => {
    expect(statesOf("")).toContain("Running");
    expect(statesOf("")).not.toContain("Failed");
    expect(statesOf("ended")).toEqual(["Terminated", "Failed"]);
    expect(statesOf("Paused")).toEqual(["Paused"]);
    expect(statesOf("all")).toEqual([]);
  });
});
