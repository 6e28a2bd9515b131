import { describe, expect, it } from "vitest";
import {
  type ArgumentField,
  argumentProblem,
  argumentsFromTexts,
  fieldsOfSchema,
  initialTexts,
  parseArgumentObject,
  textsFromArguments,
} from "./schema-form";

const fieldsOf = (properties: Record<string, unknown>, required: string[] = []) =>
  fieldsOfSchema({ type: "object", properties, required }) as ArgumentField[];

describe("the fields of a schema", () => {
  it("have the types of the properties", () => {
    const fields = fieldsOf({
      name: { type: "string" },
      text: { type: "string" },
      ratio: { type: "number" },
      count: { type: "integer" },
      dry: { type: "boolean" },
      mode: { enum: ["fast", 2, null] },
      tags: { type: "array", items: { type: "string" } },
      any: true,
    });
    expect(fields.map((field) => field.type)).toEqual([
      "text",
      "longText",
      "number",
      "integer",
      "boolean",
      "choice",
      "json",
      "json",
    ]);
  });
  it("treat a type or null as that type", () => {
    const [one, other] = fieldsOf({
      one: { anyOf: [{ type: "integer" }, { type: "null" }], default: null, description: "how many" },
      other: { type: ["string", "null"] },
    });
    expect(one).toMatchObject({ type: "integer", required: false, description: "how many", initial: "" });
    expect(other?.type).toBe("text");
  });
  it("start with the defaults", () => {
    const fields = fieldsOf(
      { a: { type: "integer", default: 3 }, b: { type: "boolean" }, c: { enum: ["x", "y"], default: "y" }, d: {} },
      ["b"],
    );
    expect(initialTexts(fields)).toEqual({ a: "3", b: "false", c: "1", d: "" });
  });
  it("do not exist for schemas that they cannot express", () => {
    expect(fieldsOfSchema({ type: "array" })).toBeNull();
    expect(fieldsOfSchema({ oneOf: [{ required: ["a"] }], properties: { a: {} } })).toBeNull();
    expect(fieldsOfSchema({ type: "object", additionalProperties: { type: "string" } })).toBeNull();
    expect(fieldsOfSchema({})).toEqual([]);
  });
  it("survive hostile schemas", () => {
    expect(fieldsOfSchema({ type: "object", properties: "no", required: 7 })).toEqual([]);
    expect(fieldsOf({ a: { type: 5, enum: "x", description: {} } })[0]).toMatchObject({
      type: "json",
      description: "",
    });
    const many = Object.fromEntries(Array.from({ length: 500 }, (_, index) => [`a${index}`, { type: "string" }]));
    expect(fieldsOfSchema({ type: "object", properties: many })).toBeNull();
    const proto = fieldsOfSchema({ type: "object", properties: JSON.parse('{"__proto__": {"type": "string"}}') });
    const args = argumentsFromTexts(proto ?? [], Object.fromEntries([["__proto__", "x"]]));
    expect(JSON.stringify(args)).toBe('{"__proto__":"x"}');
    expect(({} as Record<string, unknown>).x).toBeUndefined();
  });
});

describe("arguments", () => {
  const fields = fieldsOf(
    {
      q: { type: "string" },
      note: { type: "string" },
      n: { type: "integer" },
      f: { type: "number" },
      on: { type: "boolean" },
      mode: { enum: ["fast", 2] },
      tags: { type: "array" },
    },
    ["q", "n"],
  );
  it("have the types of the schema and leave out what is empty", () => {
    const texts = { q: "", note: "", n: " 7 ", f: "1.5", on: "false", mode: "1", tags: '["a"]' };
    expect(argumentsFromTexts(fields, texts)).toEqual({ q: "", n: 7, f: 1.5, on: false, mode: 2, tags: ["a"] });
    expect(argumentsFromTexts(fields, { q: "x", n: "0" })).toEqual({ q: "x", n: 0 });
  });
  it("are checked as they are typed", () => {
    const problem = (name: string, text: string) =>
      argumentProblem(fields.find((field) => field.name === name) as ArgumentField, text);
    expect(problem("n", "")).toBe("required");
    expect(problem("n", "1.5")).toBe("integer");
    expect(problem("n", "-12")).toBeNull();
    expect(problem("f", "1e3")).toBeNull();
    expect(problem("f", "Infinity")).toBe("number");
    expect(problem("tags", "[1,")).toBe("json");
    expect(problem("tags", "")).toBeNull();
    expect(problem("q", "")).toBeNull();
  });
  it("go from the form to JSON and back", () => {
    const values = { q: "x", n: 3, on: true, mode: "fast", tags: [1, { a: 2 }] };
    expect(argumentsFromTexts(fields, textsFromArguments(fields, values) ?? {})).toEqual(values);
    expect(textsFromArguments(fields, { other: 1 })).toBeNull();
  });
  it("are an object when written as JSON", () => {
    expect(parseArgumentObject("")).toEqual({});
    expect(parseArgumentObject("[1]")).toBe("object");
    expect(parseArgumentObject("null")).toBe("object");
    expect(parseArgumentObject("{")).toBe("json");
    expect(parseArgumentObject('{"a": 1}')).toEqual({ a: 1 });
  });
});
