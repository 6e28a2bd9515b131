/** What the form shows for each field of a task, as the schema of task files has it. */

export interface SchemaNode {
  $ref?: string;
  $defs?: Record<string, SchemaNode>;
  title?: string;
  type?: string;
  description?: string;
  default?: unknown;
  examples?: unknown[];
  const?: unknown;
  enum?: string[];
  anyOf?: SchemaNode[];
  items?: SchemaNode;
  properties?: Record<string, SchemaNode>;
  patternProperties?: Record<string, SchemaNode>;
  additionalProperties?: SchemaNode | boolean;
  required?: string[];
}

/** `lines` is a list with one entry on each line, `pairs` a mapping of names to texts, `yaml` whatever is left. */
export type Control = "text" | "number" | "switch" | "choice" | "lines" | "pairs" | "group" | "yaml";

export interface FieldSpec {
  path: string[];
  control: Control;
  hint: string;
  example: string;
  /** What counts if it is left out. */
  otherwise: unknown;
  options: string[];
  required: boolean;
  /** Of a group. */
  parts: FieldSpec[];
}

/** What people fill in first, in this order; everything else is folded. */
export const FIRST = ["name", "agent", "goal", "inputs", "deliverables", "end", "verify", "matrix"];
/** Text for a shell; as a list it would be words that no shell sees. */
const SHELL = { entrypoint: true };
const LEFT_OUT = new Set(["$schema", "network"]);

export function fieldsOf(schema: SchemaNode): Record<string, FieldSpec> {
  const all = Object.entries(schema.properties ?? {}).filter(([name]) => !LEFT_OUT.has(name));
  return Object.fromEntries(
    all.map(([name, node]) => [name, fieldOf(schema, [name], node, schema.required?.includes(name) ?? false)]),
  );
}

/** Names of the folded fields, those that the console does not know included. */
export function moreOf(fields: Record<string, FieldSpec>): string[] {
  return Object.keys(fields).filter((name) => !FIRST.includes(name));
}

function fieldOf(schema: SchemaNode, path: string[], node: SchemaNode, required: boolean): FieldSpec {
  const whole = resolved(schema, node);
  const forms = (whole.anyOf ?? [whole]).map((each) => resolved(schema, each)).filter((each) => each.type !== "null");
  const mapping = forms.find((each) => each.type === "object" && each.properties);
  const control = path.join(".") in SHELL ? "text" : controlOf(forms);
  const example = node.examples?.[0];
  return {
    path,
    control,
    hint: node.description ?? "",
    example: typeof example === "string" || typeof example === "number" ? String(example) : "",
    otherwise: node.default,
    options: forms.find((each) => each.enum)?.enum ?? [],
    required,
    parts:
      control === "group"
        ? Object.entries(mapping?.properties ?? {}).map(([name, part]) => fieldOf(schema, [...path, name], part, false))
        : [],
  };
}

function controlOf(forms: SchemaNode[]): Control {
  const types = new Set(forms.map((form) => form.type));
  const [only] = forms;
  const list = forms.find((form) => form.type === "array");
  if (list) return list.items?.type === "string" && !list.items.enum && !types.has("object") ? "lines" : "yaml";
  if (types.has("object")) {
    const mapping = forms.find((form) => form.type === "object");
    if (mapping?.patternProperties || typeof mapping?.additionalProperties === "object") return "pairs";
    // A value alone that stands for a mapping, of which it is one value.
    return mapping?.properties && !mapping.required?.length ? "group" : "text";
  }
  if (forms.length === 1 && only?.enum) return "choice";
  if (types.has("boolean")) return "switch";
  if (types.has("string")) return "text";
  return types.has("integer") || types.has("number") ? "number" : "yaml";
}

function resolved(schema: SchemaNode, node: SchemaNode): SchemaNode {
  const name = node.$ref?.replace("#/$defs/", "");
  return name ? { ...schema.$defs?.[name], ...node, $ref: undefined } : node;
}

/** Whether a control can show a value without losing any of it. */
export function fits(control: Control, value: unknown): boolean {
  if (value === undefined || value === null || control === "yaml") return true;
  if (control === "lines") return isText(value) || (Array.isArray(value) && value.every(isText));
  if (control === "pairs" || control === "group")
    return (
      typeof value === "object" && !Array.isArray(value) && (control === "group" || Object.values(value).every(isText))
    );
  if (control === "switch") return typeof value === "boolean";
  return isText(value);
}

function isText(value: unknown): boolean {
  return typeof value === "string" || typeof value === "number";
}

export function toLines(value: unknown): string {
  return (Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]).join("\n");
}

export function fromLines(text: string): string[] {
  return text.split("\n").filter((line) => line.trim() !== "");
}

export function toPairs(value: unknown): string {
  return Object.entries((value ?? {}) as Record<string, unknown>)
    .map(([name, each]) => `${name}=${each}`)
    .join("\n");
}

/** Null while a line is no `NAME=value`. */
export function fromPairs(text: string): Record<string, string> | null {
  const pairs = fromLines(text).map((line) => [
    line.slice(0, line.indexOf("=")).trim(),
    line.slice(line.indexOf("=") + 1),
  ]);
  return fromLines(text).every((line) => line.indexOf("=") > 0) ? Object.fromEntries(pairs) : null;
}
