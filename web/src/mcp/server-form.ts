/** Form for the declaration of an MCP server. */

import { isRecord } from "./api";

export interface NamedValue {
  name: string;
  value: string;
}

export type ServerKind = "remote" | "internet" | "local";

export interface ServerForm {
  name: string;
  kind: ServerKind;
  description: string;
  url: string;
  transport: "http" | "sse" | "grpc";
  command: string;
  headers: NamedValue[];
  env: NamedValue[];
  /** Patterns, one per line. */
  allow: string;
  deny: string;
  /** Lines of `name = new name`. */
  rename: string;
  /** Names, separated by commas or spaces. */
  users: string;
  agents: string;
  oauth: boolean;
  holdChanges: boolean;
}

export const EMPTY_SERVER_FORM: ServerForm = {
  name: "",
  kind: "remote",
  description: "",
  url: "",
  transport: "http",
  command: "",
  headers: [],
  env: [],
  allow: "",
  deny: "",
  rename: "",
  users: "",
  agents: "",
  oauth: false,
  holdChanges: true,
};

/** Stands for a value that the server does not show; sent back, it keeps the stored one. */
export const HIDDEN_VALUE = "***";

export type ServerFormProblem =
  | "name"
  | "nameTaken"
  | "url"
  | "https"
  | "login"
  | "quotes"
  | "header"
  | "variable"
  | "value"
  | "repeated"
  | "rename"
  | "hidden";

export type ServerFormField = "name" | "url" | "command" | "headers" | "env" | "rename";

export const SERVER_NAME = /^[a-z0-9][a-z0-9._-]{0,62}$/;
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const VARIABLE_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Problems of the form by field, while it is filled in. Empty fields are only incomplete. */
export function serverFormProblems(
  form: ServerForm,
  taken: readonly string[],
  before: ServerForm | null,
): Partial<Record<ServerFormField, ServerFormProblem>> {
  const found: Partial<Record<ServerFormField, ServerFormProblem | null>> = {
    name: form.name && !before ? nameProblem(form.name, taken) : null,
    rename: parseRenames(form.rename) === null ? "rename" : null,
  };
  if (form.kind === "local") {
    found.command = form.command.trim() ? commandProblem(form.command) : null;
    found.env = namedValuesProblem(form.env, VARIABLE_NAME, "variable");
  } else {
    found.url = form.url.trim() ? urlProblem(form.url.trim(), form.kind) : null;
    found.headers = namedValuesProblem(form.headers, HEADER_NAME, "header");
  }
  // Otherwise a person could send a value that they may not see elsewhere; the server refuses it too.
  const isMoved = before !== null && (before.url !== form.url || before.command !== form.command);
  for (const field of ["headers", "env"] as const)
    if (isMoved && form[field].some((each) => each.value === HIDDEN_VALUE)) found[field] ??= "hidden";
  return Object.fromEntries(Object.entries(found).filter(([, problem]) => problem));
}

export function isCompleteServerForm(form: ServerForm): boolean {
  return form.name !== "" && (form.kind === "local" ? form.command : form.url).trim() !== "";
}

function nameProblem(name: string, taken: readonly string[]): ServerFormProblem | null {
  if (!SERVER_NAME.test(name)) return "name";
  return taken.includes(name) ? "nameTaken" : null;
}

function urlProblem(text: string, kind: ServerKind): ServerFormProblem | null {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return "url";
  }
  if (!["http:", "https:"].includes(url.protocol) || /\s/.test(text)) return "url";
  if (url.username || url.password) return "login";
  return kind === "internet" && url.protocol !== "https:" ? "https" : null;
}

/** Whether an address can be opened in a browser; others could run scripts. */
export function isWebAddress(text: string): boolean {
  try {
    return ["http:", "https:"].includes(new URL(text).protocol);
  } catch {
    return false;
  }
}

function commandProblem(text: string): ServerFormProblem | null {
  return splitWords(text) === null ? "quotes" : null;
}

function namedValuesProblem(
  items: NamedValue[],
  pattern: RegExp,
  problem: "header" | "variable",
): ServerFormProblem | null {
  const given = items.filter(({ name, value }) => name || value);
  const names = given.map(({ name }) => (problem === "header" ? name.toLowerCase() : name));
  if (given.some(({ name }) => !pattern.test(name))) return problem;
  if (new Set(names).size < names.length) return "repeated";
  return given.some(({ value }) => !value || hasControlCharacter(value)) ? "value" : null;
}

function hasControlCharacter(text: string): boolean {
  return [...text].some((character) => character < " " || character === "\x7f");
}

/** Whether a header probably holds a password or key that is better a secret. */
export function looksLikeCredential({ name, value }: NamedValue): boolean {
  if (!value || value === HIDDEN_VALUE || value.includes("${")) return false;
  return /authorization|token|key|secret|password|cookie/i.test(name);
}

/** Words of a command line with quotes as in a shell; null for an open quote. */
export function splitWords(text: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  let quote = "";
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at] ?? "";
    if (quote) {
      if (character === quote) quote = "";
      else if (character === "\\" && quote === '"' && /["\\]/.test(text[at + 1] ?? ""))
        word = (word ?? "") + text[++at];
      else word = (word ?? "") + character;
    } else if (/\s/.test(character)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (character === "'" || character === '"') {
      quote = character;
      word ??= "";
    } else if (character === "\\" && at + 1 < text.length) word = (word ?? "") + text[++at];
    else word = (word ?? "") + character;
  }
  if (quote) return null;
  if (word !== null) words.push(word);
  return words;
}

export function joinWords(words: readonly string[]): string {
  return words.map((word) => (/^[\w@%+=:,./$-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

/** Renames of the lines; null if a line is none. */
function parseRenames(text: string): Record<string, string> | null {
  const pairs = splitLines(text).map((line) => line.split("=").map((part) => part.trim()));
  return pairs.every((pair) => pair.length === 2 && pair.every(Boolean))
    ? (Object.fromEntries(pairs) as Record<string, string>)
    : null;
}

export const splitLines = (text: string) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
const splitNames = (text: string) => text.split(/[\s,]+/).filter(Boolean);

/** The form for a declaration as the server shows it. */
export function formFromDeclaration(name: string, kind: string, declaration: Record<string, unknown>): ServerForm {
  const record = (value: unknown) => (isRecord(value) ? value : {});
  const list = (value: unknown) => (Array.isArray(value) ? value.map(String) : []);
  const pairs = (value: unknown) =>
    Object.entries(record(value)).map(([key, each]) => ({ name: key, value: String(each) }));
  const tools = record(declaration.tools);
  const access = record(declaration.access);
  return {
    name,
    kind: kind === "local" || kind === "internet" ? kind : "remote",
    description: typeof declaration.description === "string" ? declaration.description : "",
    url: typeof declaration.url === "string" ? declaration.url : "",
    transport: declaration.transport === "sse" || declaration.transport === "grpc" ? declaration.transport : "http",
    command: joinWords(list(declaration.command)),
    headers: pairs(declaration.headers),
    env: pairs(declaration.env),
    allow: list(tools.allow).join("\n"),
    deny: list(tools.deny).join("\n"),
    rename: pairs(tools.rename)
      .map((pair) => `${pair.name} = ${pair.value}`)
      .join("\n"),
    users: list(access.users).join(", "),
    agents: list(access.agents).join(", "),
    oauth: declaration.oauth !== undefined && declaration.oauth !== null,
    holdChanges: declaration.hold_changes !== false,
  };
}

/** Declaration of a valid form. Parts without a field keep what `before` has. */
export function declarationFromForm(form: ServerForm, before: Record<string, unknown> = {}): Record<string, unknown> {
  const isLocal = form.kind === "local";
  const values = (items: NamedValue[]) =>
    Object.fromEntries(items.filter(({ name }) => name).map(({ name, value }) => [name, value]));
  const former = isRecord(before.access) ? before.access : {};
  const declaration: Record<string, unknown> = {
    name: form.name,
    kind: form.kind,
    description: form.description.trim() || undefined,
    url: isLocal ? undefined : form.url.trim(),
    transport: isLocal || form.transport === "http" ? undefined : form.transport,
    command: isLocal ? (splitWords(form.command) ?? []) : undefined,
    headers: isLocal ? undefined : values(form.headers),
    env: isLocal ? values(form.env) : undefined,
    oauth: !isLocal && form.oauth ? (before.oauth ?? {}) : undefined,
    tools: { allow: splitLines(form.allow), deny: splitLines(form.deny), rename: parseRenames(form.rename) ?? {} },
    access: { ...former, users: splitNames(form.users), agents: splitNames(form.agents) },
    hold_changes: form.holdChanges,
    timeouts: before.timeouts,
    limits: before.limits,
  };
  return Object.fromEntries(Object.entries(declaration).filter(([, value]) => value !== undefined));
}
