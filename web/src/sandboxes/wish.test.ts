import { describe, expect, it } from "vitest";
import { joined, type Sample } from "./metrics";
import { BLANK, bodyOf, mistakes } from "./wish";

describe("a new sandbox", () => {
  it("leaves to the server what nobody has said", () => {
    expect(bodyOf(BLANK)).toEqual({});
  });
  it("has a kind, an image, limits and a life", () => {
    const wish = {
      ...BLANK,
      kind: "linux",
      image: "desktop",
      cpu: "500m",
      memory: " 2Gi ",
      life: "3600",
      name: "mine",
    };
    expect(bodyOf(wish)).toEqual({
      image: { uri: "desktop" },
      extensions: { "paddock.kind": "linux" },
      resourceLimits: { cpu: "500m", memory: "2Gi" },
      name: "mine",
      timeout: 3600,
    });
  });
  it("lives until it is deleted only if that was said", () => {
    expect(bodyOf({ ...BLANK, life: "never" })).toEqual({ timeout: null });
    expect("timeout" in bodyOf(BLANK)).toBe(false);
  });
  it("has of a snapshot what that has", () => {
    expect(bodyOf({ ...BLANK, snapshot: "snap-1", image: "host", kind: "linux" })).toEqual({ snapshotId: "snap-1" });
  });
  it("says which fields cannot be read", () => {
    expect(mistakes({ ...BLANK, cpu: "two", memory: "2 GB", name: "a b" })).toEqual({
      cpu: true,
      memory: true,
      name: true,
    });
    expect(mistakes({ ...BLANK, cpu: "1.5", memory: "512Mi", name: "a-b.c" })).toEqual({});
  });
});

describe("what was measured", () => {
  const sample = (second: number): Sample => ({
    at: `2026-01-01T00:00:${String(second).padStart(2, "0")}Z`,
    cpu: second,
    memory: 1,
  });
  const limits = { cpuLimit: 2, memoryLimit: 10 };
  it("goes on after what was measured before, and nothing counts twice", () => {
    const before = { ...limits, samples: [sample(1), sample(2)] };
    expect(joined(before, { ...limits, samples: [sample(2), sample(3)] }).samples.map((each) => each.cpu)).toEqual([
      1, 2, 3,
    ]);
  });
  it("is forgotten after a while", () => {
    const many = { ...limits, samples: Array.from({ length: 59 }, (_, second) => sample(second)) };
    const kept = joined(many, { ...limits, samples: [sample(59)] }).samples;
    expect(kept).toHaveLength(40);
    expect(kept.at(-1)?.cpu).toBe(59);
  });
});
