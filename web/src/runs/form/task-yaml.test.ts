import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { changeYamlValue, parseTaskYaml, taskToYaml, taskValueAt, yamlLineOfPath } from "./task-yaml";

const TEXT = `# What it is for.
name: hello # short
goal: |
  Say hello.
llm: fast
end:
  timeout: 10m
`;

/** Texts made of characters that are special in YAML. */
const spaced = fc.string({ unit: fc.constantFrom(" ", "\n", "\t", "a", ":", "#", "-", "|"), minLength: 1 });

describe("task YAML", () => {
  it("keeps comments and everything else when the form changes something", () => {
    expect(changeYamlValue(TEXT, ["end", "turns"], 3)).toBe(TEXT.replace("10m\n", "10m\n  turns: 3\n"));
    expect(changeYamlValue(TEXT, ["name"], "other")).toBe(TEXT.replace("name: hello", "name: other"));
  });

  it("keeps multi-line text a block while edited", () => {
    expect(changeYamlValue(TEXT, ["goal"], "Say")).toContain("goal: |-\n  Say\n");
    expect(parseTaskYaml(changeYamlValue(TEXT, ["goal"], "Say\nmore")).task?.goal).toBe("Say\nmore");
  });

  it("expands a bare value to a mapping", () => {
    const text = changeYamlValue(TEXT, ["llm", "cost"], 0.5);
    expect(parseTaskYaml(text).task?.llm).toEqual({ model: "fast", cost: 0.5 });
    expect(taskValueAt({ llm: "fast" }, ["llm", "model"])).toBe("fast");
    expect(taskValueAt({ llm: "fast" }, ["llm", "cost"])).toBeUndefined();
  });

  it("removes a mapping with its last value", () => {
    expect(changeYamlValue(TEXT, ["end", "timeout"], "")).toBe(TEXT.replace("end:\n  timeout: 10m\n", ""));
    expect(changeYamlValue("name: x\n", ["name"], undefined)).toBe("");
  });

  it("reports the line of an error", () => {
    expect(parseTaskYaml("name: x\ngoal: [1\nend: {").faults[0]?.line).toBeGreaterThan(1);
    expect(parseTaskYaml("- a").task).toBeNull();
    expect(parseTaskYaml("").task).toEqual({});
  });

  it("finds the line of a field or its parent", () => {
    expect(yamlLineOfPath(TEXT, ["end", "timeout"])).toBe(7);
    expect(yamlLineOfPath(TEXT, ["end", "silence"])).toBe(6);
    expect(yamlLineOfPath(TEXT, ["goal"])).toBe(3);
    expect(yamlLineOfPath(TEXT, ["agent"])).toBe(1);
    expect(yamlLineOfPath("inputs:\n  - a\n  - {content: x}\n", ["inputs", 1, "target"])).toBe(3);
  });

  it("round-trips any value", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: "grapheme", minLength: 1 }), spaced), (goal) => {
        expect(parseTaskYaml(changeYamlValue(TEXT, ["goal"], goal)).task?.goal).toBe(goal);
        expect(parseTaskYaml(taskToYaml({ goal })).task).toEqual({ goal });
      }),
      { numRuns: 200 },
    );
  });
});
