import { describe, expect, it } from "vitest";
import type { ServerFacts } from "@/shell/status/server-facts";
import { healthHints } from "./health-hints";

const HEALTHY_FACTS = {
  disk: { free: 10e9, total: 20e9, needed: 1e9 },
  models: { items: [], patterns: [], real: true, demo: false },
  kinds: [{ name: "code", title: "Code", image: "code", built: true }],
  defaultKinds: ["code"],
} as unknown as ServerFacts;
const MODELS = {
  providers: [{ name: "a", kind: "openai", formats: [], failing: false, unreached: false }],
  models: [],
  patterns: [],
  ignoredVariables: [],
  archive: { enabled: true, durability: "behind", waitingBytes: 0, lost: 0 },
};

describe("hints", () => {
  it("are empty when all is well", () => {
    expect(healthHints(HEALTHY_FACTS, MODELS)).toEqual([]);
    expect(healthHints(HEALTHY_FACTS, undefined)).toEqual([]);
  });
  it("report each problem separately", () => {
    const ids = (facts: Partial<ServerFacts>, llm = MODELS) =>
      healthHints({ ...HEALTHY_FACTS, ...facts }, llm).map(({ id }) => id);
    expect(ids({ disk: { free: 1, total: 9, needed: 5 } })).toEqual(["disk"]);
    expect(
      ids({ models: { items: [], patterns: [], real: false, demo: true, state: "ready", refusedKeys: {} } }),
    ).toEqual(["scripts"]);
    expect(ids({ kinds: HEALTHY_FACTS.kinds.map((kind) => ({ ...kind, built: false })) })).toEqual(["kinds"]);
    expect(ids({}, { ...MODELS, archive: { ...MODELS.archive, lost: 3 } })).toEqual(["lost"]);
    expect(ids({}, { ...MODELS, providers: MODELS.providers.map((each) => ({ ...each, failing: true })) })).toEqual([
      "failing",
    ]);
    const unreached = MODELS.providers.map((each) => ({ ...each, unreached: true, listProblem: "no" }));
    expect(healthHints(HEALTHY_FACTS, { ...MODELS, providers: unreached })).toEqual([
      { id: "unreached", values: { name: "a", problem: "no" } },
    ]);
    const refused = MODELS.providers.map((each) => ({ ...each, keyRefusedAt: "2026-01-01T00:00:00Z", failing: true }));
    expect(healthHints(HEALTHY_FACTS, { ...MODELS, providers: refused })).toEqual([
      { id: "keyRefused", values: { name: "a", where: "llm.providers.a.key" } },
    ]);
  });
});
