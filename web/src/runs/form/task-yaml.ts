/** A task as YAML text and as data; edits of one update the other. */

import { Document, isMap, isScalar, LineCounter, parseDocument, type Scalar, visit, type YAMLParseError } from "yaml";

export type Task = Record<string, unknown>;
export type ValuePath = (string | number)[];

export interface YamlFault {
  line: number;
  message: string;
}

export interface ParsedTask {
  /** Null while the text is not a mapping. */
  task: Task | null;
  faults: YamlFault[];
}

/** Keys for which a bare value may stand instead of a mapping. */
const SHORT_FORM_KEYS: Record<string, string> = { llm: "model", retries: "times" };

/** A YAML block scalar would lose text that is only spaces. */
const PLAIN_STRINGS = {
  Scalar: (_: unknown, node: Scalar) => {
    if (typeof node.value === "string" && !/\S/.test(node.value)) node.type = "QUOTE_DOUBLE";
  },
};

export function parseTaskYaml(text: string): ParsedTask {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const faults = document.errors.map((error: YAMLParseError) => ({
    line: lines.linePos(error.pos[0]).line,
    message: error.message,
  }));
  if (faults.length > 0) return { task: null, faults };
  try {
    const value: unknown = document.toJS({ maxAliasCount: 100 });
    if (value === null || value === undefined) return { task: {}, faults };
    if (typeof value === "object" && !Array.isArray(value)) return { task: value as Task, faults };
    return { task: null, faults: [{ line: 1, message: "a task is a mapping; it begins with 'name: NAME'" }] };
  } catch (error) {
    return { task: null, faults: [{ line: 1, message: error instanceof Error ? error.message : String(error) }] };
  }
}

export function taskToYaml(task: Task): string {
  const document = new Document(task);
  visit(document, PLAIN_STRINGS);
  return document.toString({ lineWidth: 0, blockQuote: "literal" });
}

/** Change one value and keep all other text, including comments. `undefined` removes the value. */
export function changeYamlValue(text: string, path: ValuePath, value: unknown): string {
  const document = parseDocument(text);
  if (document.errors.length > 0) return text;
  if (document.contents === null || !isMap(document.contents)) document.contents = document.createNode({}) as never;
  const first = path[0];
  if (path.length > 1 && typeof first === "string" && first in SHORT_FORM_KEYS) {
    const existing = document.get(first, true);
    if (isScalar(existing) && existing.value !== null)
      document.set(first, document.createNode({ [SHORT_FORM_KEYS[first] ?? ""]: existing.value }));
  }
  if (isEmptyNode(value)) {
    for (let length = path.length; length > 0; length -= 1) {
      const ancestorPath = path.slice(0, length);
      if (document.hasIn(ancestorPath)) document.deleteIn(ancestorPath);
      // A mapping without values is removed.
      const parent = document.getIn(ancestorPath.slice(0, -1), true);
      if (length === 1 || !isMap(parent) || parent.items.length > 0) break;
    }
  } else {
    for (let length = 1; length < path.length; length += 1) {
      const ancestorPath = path.slice(0, length);
      const existing = document.getIn(ancestorPath, true);
      if (existing === undefined || (isScalar(existing) && existing.value === null))
        document.setIn(ancestorPath, document.createNode({}));
    }
    const before = document.getIn(path, true);
    const after = document.createNode(value);
    if (isScalar(before) && isScalar(after)) {
      after.comment = before.comment;
      after.commentBefore = before.commentBefore;
      after.spaceBefore = before.spaceBefore;
      // Multi-line text stays a block scalar while it is edited, even with one line.
      if (typeof value === "string" && /\S/.test(value) && before.type === "BLOCK_LITERAL") after.type = before.type;
    }
    visit(after, PLAIN_STRINGS);
    document.setIn(path, after);
  }
  return isMap(document.contents) && document.contents.items.length === 0
    ? (document.commentBefore ?? "").replace(/^/gm, "#").replace(/^#$/, "")
    : document.toString({ lineWidth: 0, blockQuote: "literal" });
}

function isEmptyNode(value: unknown): boolean {
  return value === undefined || value === "" || (Array.isArray(value) && value.length === 0);
}

export function taskValueAt(task: Task, path: ValuePath): unknown {
  let value: unknown = task;
  for (const [index, step] of path.entries()) {
    if (index === 1 && value !== null && typeof value !== "object")
      return SHORT_FORM_KEYS[String(path[0])] === step ? value : undefined;
    if (typeof value !== "object" || value === null) return undefined;
    value = (value as Record<string | number, unknown>)[step];
  }
  return value ?? undefined;
}

/** Line of a value, or of its nearest existing parent; line 1 if there is none. */
export function yamlLineOfPath(text: string, path: ValuePath): number {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  for (let length = path.length; length > 0; length -= 1) {
    const parent = length > 1 ? document.getIn(path.slice(0, length - 1), true) : document.contents;
    const step = path[length - 1];
    const key = isMap(parent)
      ? parent.items.find((pair) => (isScalar(pair.key) ? pair.key.value : pair.key) === step)?.key
      : document.getIn(path.slice(0, length), true);
    const range = (key as { range?: [number, number, number] } | null | undefined)?.range;
    if (range) return lines.linePos(range[0]).line;
  }
  return 1;
}

/** The value as a list; a single entry becomes a list of one. */
export function toList(value: unknown): unknown[] {
  return value === undefined || value === null ? [] : Array.isArray(value) ? value : [value];
}
