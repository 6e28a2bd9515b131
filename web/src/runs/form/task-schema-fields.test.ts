import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
  controlFitsValue,
  foldedFieldNames,
  formatPairs,
  MAIN_FIELDS,
  parseLines,
  parsePairs,
  type SchemaNode,
  taskFieldsFromSchema,
} from "./task-schema-fields";

const schema = JSON.parse(readFileSync("../docs/reference/task.schema.json", "utf8")) as SchemaNode;

describe("the form", () => {
  const fields = taskFieldsFromSchema(schema);

  it("has every field of a task", () => {
    const names = Object.keys(schema.properties ?? {}).filter((name) => name !== "$schema");
    expect([...MAIN_FIELDS, ...foldedFieldNames(fields)].sort()).toEqual(names.sort());
  });

  it("chooses controls by type", () => {
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

  it("takes hints and required fields from the schema", () => {
    expect(fields.name).toMatchObject({ required: true, hint: "Name of the task and its runs.", example: "hello" });
    expect(fields.agent?.required).toBe(false);
  });

  it("leaves values without a lossless control to YAML", () => {
    expect(controlFitsValue("text", { file: "goal.md" })).toBe(false);
    expect(controlFitsValue("pairs", { A: ["x"] })).toBe(false);
    expect(controlFitsValue("lines", ["a", "b"])).toBe(true);
    expect(controlFitsValue("group", "fast")).toBe(false);
  });

  it("parses pairs and lines", () => {
    expect(parsePairs("A=1\nB=x=y\n")).toEqual({ A: "1", B: "x=y" });
    expect(parsePairs(formatPairs({ A: "1", B: "" }))).toEqual({ A: "1", B: "" });
    expect(parsePairs("A")).toBeNull();
    expect(parseLines("a\n\n b\n")).toEqual(["a", " b"]);
  });
});
