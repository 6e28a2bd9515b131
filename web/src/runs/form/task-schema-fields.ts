/** Form fields derived from the JSON schema of tasks. */

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

/** `lines`: a list with one entry per line; `pairs`: a mapping of names to texts; `yaml`: everything else. */
export type FieldControlType = "text" | "number" | "switch" | "choice" | "lines" | "pairs" | "group" | "yaml";

export interface TaskFieldSpec {
  path: string[];
  control: FieldControlType;
  hint: string;
  example: string;
  /** Default value. */
  defaultValue: unknown;
  options: string[];
  required: boolean;
  /** Fields of a group. */
  parts: TaskFieldSpec[];
}

/** Main fields in display order; all others are folded. */
export const MAIN_FIELDS = ["name", "agent", "goal", "inputs", "network", "deliverables", "end", "verify", "matrix"];
/** Shell text; a list would be run without a shell. */
const SHELL_FIELDS = { entrypoint: true };
const OMITTED_FIELDS = new Set(["$schema"]);

export function taskFieldsFromSchema(schema: SchemaNode): Record<string, TaskFieldSpec> {
  const all = Object.entries(schema.properties ?? {}).filter(([name]) => !OMITTED_FIELDS.has(name));
  return Object.fromEntries(
    all.map(([name, node]) => [name, fieldFromNode(schema, [name], node, schema.required?.includes(name) ?? false)]),
  );
}

/** Names of folded fields, including fields unknown to the console. */
export function foldedFieldNames(fields: Record<string, TaskFieldSpec>): string[] {
  return Object.keys(fields).filter((name) => !MAIN_FIELDS.includes(name));
}

function fieldFromNode(schema: SchemaNode, path: string[], node: SchemaNode, required: boolean): TaskFieldSpec {
  const resolved = resolveReference(schema, node);
  const forms = (resolved.anyOf ?? [resolved])
    .map((each) => resolveReference(schema, each))
    .filter((each) => each.type !== "null");
  const mapping = forms.find((each) => each.type === "object" && each.properties);
  const control = path.join(".") in SHELL_FIELDS ? "text" : controlTypeOf(forms);
  const example = node.examples?.[0];
  return {
    path,
    control,
    hint: node.description ?? "",
    example: typeof example === "string" || typeof example === "number" ? String(example) : "",
    defaultValue: node.default,
    options: forms.find((each) => each.enum)?.enum ?? [],
    required,
    parts:
      control === "group"
        ? Object.entries(mapping?.properties ?? {}).map(([name, part]) =>
            fieldFromNode(schema, [...path, name], part, false),
          )
        : [],
  };
}

function controlTypeOf(forms: SchemaNode[]): FieldControlType {
  const types = new Set(forms.map((form) => form.type));
  const [only] = forms;
  const list = forms.find((form) => form.type === "array");
  if (list) return list.items?.type === "string" && !list.items.enum && !types.has("object") ? "lines" : "yaml";
  if (types.has("object")) {
    const mapping = forms.find((form) => form.type === "object");
    if (mapping?.patternProperties || typeof mapping?.additionalProperties === "object") return "pairs";
    // A bare value that stands for a mapping with one key.
    return mapping?.properties && !mapping.required?.length ? "group" : "text";
  }
  if (forms.length === 1 && only?.enum) return "choice";
  if (types.has("boolean")) return "switch";
  if (types.has("string")) return "text";
  return types.has("integer") || types.has("number") ? "number" : "yaml";
}

function resolveReference(schema: SchemaNode, node: SchemaNode): SchemaNode {
  const name = node.$ref?.replace("#/$defs/", "");
  return name ? { ...schema.$defs?.[name], ...node, $ref: undefined } : node;
}

/** Whether the control can show the value without loss. */
export function controlFitsValue(control: FieldControlType, value: unknown): boolean {
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

export function formatLines(value: unknown): string {
  return (Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]).join("\n");
}

export function parseLines(text: string): string[] {
  return text.split("\n").filter((line) => line.trim() !== "");
}

export function formatPairs(value: unknown): string {
  return Object.entries((value ?? {}) as Record<string, unknown>)
    .map(([name, each]) => `${name}=${each}`)
    .join("\n");
}

/** Null while a line is not `NAME=value`. */
export function parsePairs(text: string): Record<string, string> | null {
  const pairs = parseLines(text).map((line) => [
    line.slice(0, line.indexOf("=")).trim(),
    line.slice(line.indexOf("=") + 1),
  ]);
  return parseLines(text).every((line) => line.indexOf("=") > 0) ? Object.fromEntries(pairs) : null;
}
