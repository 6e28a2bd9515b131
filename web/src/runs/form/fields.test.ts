import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { FIRST, fieldsOf, fits, fromLines, fromPairs, moreOf, type SchemaNode, toPairs } from "./fields";

const schema = JSON.parse(readFileSync("../docs/reference/task.schema.json", "utf8")) as SchemaNode;

describe("the form", () => {
  const fields = fieldsOf(schema);

  it("has a place for every field of a task", () => {
    const names = Object.keys(schema.properties ?? {}).filter((name) => name !== "$schema" && name !== "network");
    expect([...FIRST, ...moreOf(fields)].sort()).toEqual(names.sort());
  });

  it("shows each as what it is", () => {
    const controls = Object.fromEntries(Object.entries(fields).map(([name, { control }]) => [name, control]));
    expect(controls).toMatchObject({
      name: "text",
      goal: "text",
      agent: "text",
      llm: "group",
      end: "group",
      resources: "group",
      matrix: "group",
      env: "pairs",
      secrets: "lines",
      entrypoint: "text",
      priority: "number",
      mcp: "yaml",
      retries: "group",
    });
    const end = Object.fromEntries(fields.end?.parts.map((part) => [part.path.join("."), part.control]) ?? []);
    expect(end).toMatchObject({ "end.timeout": "text", "end.exit": "switch", "end.turns": "number" });
    expect(fields.matrix?.parts.map((part) => part.control)).toEqual(["lines", "lines"]);
  });

  it("takes its hints and what must be there from the schema", () => {
    expect(fields.name).toMatchObject({ required: true, hint: "What runs of it are called.", example: "hello" });
    expect(fields.agent?.required).toBe(false);
  });

  it("leaves values that a control would spoil to the text", () => {
    expect(fits("text", { file: "goal.md" })).toBe(false);
    expect(fits("pairs", { A: ["x"] })).toBe(false);
    expect(fits("lines", ["a", "b"])).toBe(true);
    expect(fits("group", "fast")).toBe(false);
  });

  it("reads variables, and lines, as they are written", () => {
    expect(fromPairs("A=1\nB=x=y\n")).toEqual({ A: "1", B: "x=y" });
    expect(fromPairs(toPairs({ A: "1", B: "" }))).toEqual({ A: "1", B: "" });
    expect(fromPairs("A")).toBeNull();
    expect(fromLines("a\n\n b\n")).toEqual(["a", " b"]);
  });
});
