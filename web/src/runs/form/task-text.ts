/** A task as YAML that a person edits and as data that a form edits, each made from the other. */

import { Document, isMap, isScalar, LineCounter, parseDocument, type Scalar, visit, type YAMLParseError } from "yaml";

export type Task = Record<string, unknown>;
export type Path = (string | number)[];

export interface Fault {
  line: number;
  message: string;
}

export interface Reading {
  /** Null while the text is no mapping. */
  task: Task | null;
  faults: Fault[];
}

/** Where a value alone stands for a mapping, and for which key of it. */
const SHORT: Record<string, string> = { llm: "model", retries: "times" };

/** A block of nothing but spaces would lose some of them. */
const EXACT = {
  Scalar: (_: unknown, node: Scalar) => {
    if (typeof node.value === "string" && !/\S/.test(node.value)) node.type = "QUOTE_DOUBLE";
  },
};

export function read(text: string): Reading {
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

export function write(task: Task): string {
  const document = new Document(task);
  visit(document, EXACT);
  return document.toString({ lineWidth: 0, blockQuote: "literal" });
}

/** The text with one value changed, and everything else, comments included, as it was. `undefined` takes it out. */
export function change(text: string, path: Path, value: unknown): string {
  const document = parseDocument(text);
  if (document.errors.length > 0) return text;
  if (document.contents === null || !isMap(document.contents)) document.contents = document.createNode({}) as never;
  const first = path[0];
  if (path.length > 1 && typeof first === "string" && first in SHORT) {
    const there = document.get(first, true);
    if (isScalar(there) && there.value !== null)
      document.set(first, document.createNode({ [SHORT[first] ?? ""]: there.value }));
  }
  if (isEmpty(value)) {
    for (let length = path.length; length > 0; length -= 1) {
      const way = path.slice(0, length);
      if (document.hasIn(way)) document.deleteIn(way);
      // A mapping that has lost its last value says nothing any more.
      const parent = document.getIn(way.slice(0, -1), true);
      if (length === 1 || !isMap(parent) || parent.items.length > 0) break;
    }
  } else {
    for (let length = 1; length < path.length; length += 1) {
      const way = path.slice(0, length);
      const there = document.getIn(way, true);
      if (there === undefined || (isScalar(there) && there.value === null))
        document.setIn(way, document.createNode({}));
    }
    const before = document.getIn(path, true);
    const after = document.createNode(value);
    if (isScalar(before) && isScalar(after)) {
      after.comment = before.comment;
      after.commentBefore = before.commentBefore;
      after.spaceBefore = before.spaceBefore;
      // A text of several lines stays one while it is edited, also when it has only one for a moment.
      if (typeof value === "string" && /\S/.test(value) && before.type === "BLOCK_LITERAL") after.type = before.type;
    }
    visit(after, EXACT);
    document.setIn(path, after);
  }
  return isMap(document.contents) && document.contents.items.length === 0
    ? (document.commentBefore ?? "").replace(/^/gm, "#").replace(/^#$/, "")
    : document.toString({ lineWidth: 0, blockQuote: "literal" });
}

function isEmpty(value: unknown): boolean {
  return value === undefined || value === "" || (Array.isArray(value) && value.length === 0);
}

export function valueAt(task: Task, path: Path): unknown {
  let value: unknown = task;
  for (const [index, step] of path.entries()) {
    if (index === 1 && value !== null && typeof value !== "object")
      return SHORT[String(path[0])] === step ? value : undefined;
    if (typeof value !== "object" || value === null) return undefined;
    value = (value as Record<string | number, unknown>)[step];
  }
  return value ?? undefined;
}

/** The line on which something stands, or what it would be in; the first one of the text if nothing of it is there. */
export function lineOf(text: string, path: Path): number {
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

/** A list where one entry alone will do. */
export function listOf(value: unknown): unknown[] {
  return value === undefined || value === null ? [] : Array.isArray(value) ? value : [value];
}
