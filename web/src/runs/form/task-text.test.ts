import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { change, lineOf, read, valueAt, write } from "./task-text";

const TEXT = `# What it is for.
name: hello # short
goal: |
  Say hello.
llm: fast
end:
  timeout: 10m
`;

/** Texts of little but what YAML is particular about. */
const spaced = fc.string({ unit: fc.constantFrom(" ", "\n", "\t", "a", ":", "#", "-", "|"), minLength: 1 });

describe("a task's text", () => {
  it("keeps comments and everything else when the form changes something", () => {
    expect(change(TEXT, ["end", "turns"], 3)).toBe(TEXT.replace("10m\n", "10m\n  turns: 3\n"));
    expect(change(TEXT, ["name"], "other")).toBe(TEXT.replace("name: hello", "name: other"));
  });

  it("keeps a text of several lines one while it is edited", () => {
    expect(change(TEXT, ["goal"], "Say")).toContain("goal: |-\n  Say\n");
    expect(read(change(TEXT, ["goal"], "Say\nmore")).task?.goal).toBe("Say\nmore");
  });

  it("makes a mapping of a value that stood for one", () => {
    const text = change(TEXT, ["llm", "cost"], 0.5);
    expect(read(text).task?.llm).toEqual({ model: "fast", cost: 0.5 });
    expect(valueAt({ llm: "fast" }, ["llm", "model"])).toBe("fast");
    expect(valueAt({ llm: "fast" }, ["llm", "cost"])).toBeUndefined();
  });

  it("takes a mapping out with its last value", () => {
    expect(change(TEXT, ["end", "timeout"], "")).toBe(TEXT.replace("end:\n  timeout: 10m\n", ""));
    expect(change("name: x\n", ["name"], undefined)).toBe("");
  });

  it("says on which line something is wrong", () => {
    expect(read("name: x\ngoal: [1\nend: {").faults[0]?.line).toBeGreaterThan(1);
    expect(read("- a").task).toBeNull();
    expect(read("").task).toEqual({});
  });

  it("finds the line of a field, and of what it is missing from", () => {
    expect(lineOf(TEXT, ["end", "timeout"])).toBe(7);
    expect(lineOf(TEXT, ["end", "silence"])).toBe(6);
    expect(lineOf(TEXT, ["goal"])).toBe(3);
    expect(lineOf(TEXT, ["agent"])).toBe(1);
    expect(lineOf("inputs:\n  - a\n  - {content: x}\n", ["inputs", 1, "target"])).toBe(3);
  });

  it("comes back as it was, whatever is written into it", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: "grapheme", minLength: 1 }), spaced), (goal) => {
        expect(read(change(TEXT, ["goal"], goal)).task?.goal).toBe(goal);
        expect(read(write({ goal })).task).toEqual({ goal });
      }),
      { numRuns: 200 },
    );
  });
});
