/** Forms for the arguments of a tool, from its JSON schema. */

import { isRecord } from "./api";

export type ArgumentType = "text" | "longText" | "number" | "integer" | "boolean" | "choice" | "json";

export interface ArgumentField {
  name: string;
  type: ArgumentType;
  required: boolean;
  description: string;
  /** Values of a choice; their indexes are the values of the input. */
  choices: unknown[];
  /** Text that the input starts with. */
  initial: string;
}

/** Texts of the inputs by field; an empty one leaves the argument out. */
export type ArgumentTexts = Record<string, string>;

export type ArgumentProblem = "required" | "number" | "integer" | "json" | "object";

const MAX_FIELDS = 60;
const MAX_CHOICES = 200;
const LONG_TEXT_NAMES = /^(text|content|body|code|prompt|message|markdown|html|sql|query|script)$/i;

/** Fields for the properties of a schema; null if only raw JSON can express it. */
export function fieldsOfSchema(schema: Record<string, unknown>): ArgumentField[] | null {
  const properties = isRecord(schema.properties) ? Object.entries(schema.properties) : [];
  if (schema.type !== undefined && schema.type !== "object") return null;
  if (["oneOf", "anyOf", "allOf", "$ref", "if"].some((key) => key in schema)) return null;
  if (properties.length > MAX_FIELDS) return null;
  if (properties.length === 0 && (isRecord(schema.patternProperties) || isRecord(schema.additionalProperties)))
    return null;
  const required = Array.isArray(schema.required) ? schema.required : [];
  return properties.map(([name, property]) => fieldOfProperty(name, property, required.includes(name)));
}

function fieldOfProperty(name: string, property: unknown, required: boolean): ArgumentField {
  const schema = withoutNull(isRecord(property) ? property : {});
  const choices = choicesOfSchema(schema);
  const type = choices.length > 0 ? "choice" : typeOfSchema(name, schema);
  const description = typeof schema.description === "string" ? schema.description : "";
  return { name, type, required, description, choices, initial: initialText(type, choices, schema.default, required) };
}

/** `anyOf: [X, null]`, as generators write optional arguments, is X. */
function withoutNull(schema: Record<string, unknown>): Record<string, unknown> {
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(alternatives)) {
    const others = alternatives.filter((each) => !(isRecord(each) && each.type === "null"));
    if (others.length === 1 && isRecord(others[0])) return { ...others[0], ...omit(schema, ["anyOf", "oneOf"]) };
  }
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((each) => each !== "null");
    if (types.length === 1) return { ...schema, type: types[0] };
  }
  return schema;
}

function omit(schema: Record<string, unknown>, names: string[]): Record<string, unknown> {
  return Object.fromEntries(Object.entries(schema).filter(([name]) => !names.includes(name)));
}

function choicesOfSchema(schema: Record<string, unknown>): unknown[] {
  if ("const" in schema) return [schema.const];
  return Array.isArray(schema.enum) && schema.enum.length <= MAX_CHOICES ? schema.enum : [];
}

function typeOfSchema(name: string, schema: Record<string, unknown>): ArgumentType {
  switch (schema.type) {
    case "string":
      return LONG_TEXT_NAMES.test(name) ? "longText" : "text";
    case "number":
    case "integer":
    case "boolean":
      return schema.type;
    default:
      return "json";
  }
}

function initialText(type: ArgumentType, choices: unknown[], value: unknown, required: boolean): string {
  if (type === "choice") {
    const index = choices.findIndex((each) => JSON.stringify(each) === JSON.stringify(value));
    return index >= 0 ? String(index) : required && choices.length === 1 ? "0" : "";
  }
  if (type === "boolean") return typeof value === "boolean" ? String(value) : required ? "false" : "";
  if (value === undefined || value === null) return "";
  if (type === "json") return JSON.stringify(value, null, 2);
  return ["string", "number"].includes(typeof value) ? String(value) : "";
}

export const initialTexts = (fields: ArgumentField[]): ArgumentTexts =>
  Object.fromEntries(fields.map((field) => [field.name, field.initial]));

/** Why the text of a field cannot be sent; null if it can. */
export function argumentProblem(field: ArgumentField, text: string): ArgumentProblem | null {
  // An empty text is a value too.
  if (field.type === "text" || field.type === "longText") return null;
  if (!text.trim()) return field.required ? "required" : null;
  if (field.type === "number") return Number.isFinite(Number(text)) ? null : "number";
  if (field.type === "integer") return /^[+-]?\d+$/.test(text.trim()) ? null : "integer";
  return field.type === "json" && parseJson(text) === undefined ? "json" : null;
}

/** Arguments for a call from the texts of valid fields. */
export function argumentsFromTexts(fields: ArgumentField[], texts: ArgumentTexts): Record<string, unknown> {
  const entries = fields.flatMap((field): [string, unknown][] => {
    const text = texts[field.name] ?? "";
    if (field.type === "text" || field.type === "longText")
      return text !== "" || field.required ? [[field.name, text]] : [];
    if (!text.trim()) return [];
    if (field.type === "choice") return [[field.name, field.choices[Number(text)]]];
    if (field.type === "boolean") return [[field.name, text === "true"]];
    return [[field.name, field.type === "json" ? parseJson(text) : Number(text)]];
  });
  // Not by assignment: a server may name an argument `__proto__`.
  return Object.fromEntries(entries);
}

/** Texts of the fields for given arguments; null if they have more than the fields can show. */
export function textsFromArguments(fields: ArgumentField[], values: Record<string, unknown>): ArgumentTexts | null {
  const known = new Map(fields.map((field) => [field.name, field]));
  if (Object.keys(values).some((name) => !known.has(name))) return null;
  return Object.fromEntries(
    fields.map((field) => [
      field.name,
      Object.hasOwn(values, field.name) ? textOfValue(field, values[field.name]) : "",
    ]),
  );
}

function textOfValue(field: ArgumentField, value: unknown): string {
  if (field.type === "choice") {
    const index = field.choices.findIndex((each) => JSON.stringify(each) === JSON.stringify(value));
    return index >= 0 ? String(index) : "";
  }
  if (field.type === "json") return JSON.stringify(value, null, 2);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The object in a JSON text, or why it is none. */
export function parseArgumentObject(text: string): Record<string, unknown> | ArgumentProblem {
  if (!text.trim()) return {};
  const value = parseJson(text);
  if (value === undefined) return "json";
  return isRecord(value) ? value : "object";
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
