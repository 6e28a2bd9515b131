import { describe, expect, it } from "vitest";
import { createSandboxRequestBody, EMPTY_SANDBOX_FORM, invalidSandboxFields } from "./create-form";
import { type MetricSample, mergeMetricHistory } from "./sandbox-metrics";

describe("a new sandbox", () => {
  it("leaves unset fields to the server", () => {
    expect(createSandboxRequestBody(EMPTY_SANDBOX_FORM)).toEqual({});
  });
  it("has a kind, an image, limits and a lifetime", () => {
    const form = {
      ...EMPTY_SANDBOX_FORM,
      kind: "linux",
      image: "desktop",
      cpu: "500m",
      memory: " 2Gi ",
      life: "3600",
      name: "mine",
    };
    expect(createSandboxRequestBody(form)).toEqual({
      image: { uri: "desktop" },
      extensions: { "paddock.kind": "linux" },
      resourceLimits: { cpu: "500m", memory: "2Gi" },
      name: "mine",
      timeout: 3600,
    });
  });
  it("has no expiry only if requested", () => {
    expect(createSandboxRequestBody({ ...EMPTY_SANDBOX_FORM, life: "never" })).toEqual({ timeout: null });
    expect("timeout" in createSandboxRequestBody(EMPTY_SANDBOX_FORM)).toBe(false);
  });
  it("has a network policy only if one is chosen", () => {
    const bodyOf = (choice: "none" | "web" | "own", rules = "") =>
      createSandboxRequestBody({ ...EMPTY_SANDBOX_FORM, network: { choice, rules } });
    expect([bodyOf("none"), bodyOf("web")]).toEqual([{ network: "none" }, { network: "web" }]);
    expect(bodyOf("own", "allow a.org\n\n deny b.org ")).toEqual({ network: ["allow a.org", "deny b.org"] });
    expect(invalidSandboxFields({ ...EMPTY_SANDBOX_FORM, network: { choice: "own", rules: " \n" } })).toEqual({
      network: true,
    });
  });
  it("omits what a snapshot determines", () => {
    expect(
      createSandboxRequestBody({ ...EMPTY_SANDBOX_FORM, snapshot: "snap-1", image: "host", kind: "linux" }),
    ).toEqual({
      snapshotId: "snap-1",
    });
  });
  it("reports invalid fields", () => {
    expect(invalidSandboxFields({ ...EMPTY_SANDBOX_FORM, cpu: "two", memory: "2 GB", name: "a b" })).toEqual({
      cpu: true,
      memory: true,
      name: true,
    });
    expect(invalidSandboxFields({ ...EMPTY_SANDBOX_FORM, cpu: "1.5", memory: "512Mi", name: "a-b.c" })).toEqual({});
  });
});

describe("metric history", () => {
  const sample = (second: number): MetricSample => ({
    at: `2026-01-01T00:00:${String(second).padStart(2, "0")}Z`,
    cpu: second,
    memory: 1,
  });
  const limits = { cpuLimit: 2, memoryLimit: 10 };
  it("appends new samples without duplicates", () => {
    const before = { ...limits, samples: [sample(1), sample(2)] };
    expect(
      mergeMetricHistory(before, { ...limits, samples: [sample(2), sample(3)] }).samples.map((each) => each.cpu),
    ).toEqual([1, 2, 3]);
  });
  it("drops old samples", () => {
    const many = { ...limits, samples: Array.from({ length: 59 }, (_, second) => sample(second)) };
    const merged = mergeMetricHistory(many, { ...limits, samples: [sample(59)] }).samples;
    expect(merged).toHaveLength(40);
    expect(merged.at(-1)?.cpu).toBe(59);
  });
});
