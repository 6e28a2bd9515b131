import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  declarationFromForm,
  EMPTY_SERVER_FORM,
  formFromDeclaration,
  HIDDEN_VALUE,
  isCompleteServerForm,
  isWebAddress,
  joinWords,
  looksLikeCredential,
  type ServerForm,
  serverFormProblems,
  splitWords,
} from "./server-form";

// biome-ignore lint/suspicious/noTemplateCurlyInString: the server replaces it.
const BY_SECRET = "Bearer ${TOKEN}";
const remote: ServerForm = { ...EMPTY_SERVER_FORM, name: "calc", url: "http://tools.lan/mcp" };
const local: ServerForm = { ...EMPTY_SERVER_FORM, name: "calc", kind: "local", command: "python3 server.py" };
const problemsOf = (changes: Partial<ServerForm>, base = remote) =>
  serverFormProblems({ ...base, ...changes }, ["taken"], null);

describe("problems of the form", () => {
  it("are none for a good server", () => {
    expect(problemsOf({})).toEqual({});
    expect(problemsOf({}, local)).toEqual({});
    expect(isCompleteServerForm(remote)).toBe(true);
    expect(isCompleteServerForm({ ...remote, url: " " })).toBe(false);
  });
  it("name the field", () => {
    expect(problemsOf({ name: "Calc" })).toEqual({ name: "name" });
    expect(problemsOf({ name: "taken" })).toEqual({ name: "nameTaken" });
    expect(problemsOf({ url: "tools.lan" })).toEqual({ url: "url" });
    expect(problemsOf({ url: "ftp://tools.lan" })).toEqual({ url: "url" });
    expect(problemsOf({ url: "https://a:b@tools.lan" })).toEqual({ url: "login" });
    expect(problemsOf({ kind: "internet" })).toEqual({ url: "https" });
    expect(problemsOf({ command: "sh -c 'open" }, local)).toEqual({ command: "quotes" });
    expect(problemsOf({ rename: "a = b\nc" })).toEqual({ rename: "rename" });
  });
  it("cover headers and variables", () => {
    expect(problemsOf({ headers: [{ name: "X Team", value: "a" }] })).toEqual({ headers: "header" });
    expect(problemsOf({ headers: [{ name: "X-Team", value: "" }] })).toEqual({ headers: "value" });
    expect(problemsOf({ headers: [{ name: "X-Team", value: "a\nb" }] })).toEqual({ headers: "value" });
    const twice = ["X-Team", "x-team"].map((name) => ({ name, value: "a" }));
    expect(problemsOf({ headers: twice })).toEqual({ headers: "repeated" });
    expect(problemsOf({ headers: [{ name: "", value: "" }] })).toEqual({});
    expect(problemsOf({ env: [{ name: "1A", value: "a" }] }, local)).toEqual({ env: "variable" });
  });
  it("include hidden values that would go to another address", () => {
    const before = { ...remote, headers: [{ name: "Authorization", value: HIDDEN_VALUE }] };
    expect(serverFormProblems(before, ["calc"], before)).toEqual({});
    expect(serverFormProblems({ ...before, url: "https://evil.example/mcp" }, ["calc"], before)).toEqual({
      headers: "hidden",
    });
  });
});

describe("a declaration", () => {
  it("survives the form", () => {
    const declaration = {
      name: "calc",
      kind: "internet",
      description: "Adds.",
      url: "https://tools.example/mcp",
      transport: "sse",
      headers: { Authorization: BY_SECRET },
      oauth: { scopes: ["read"] },
      tools: { allow: ["a*"], deny: ["b"], rename: { a: "c" } },
      access: { tenants: ["t"], users: ["ada"], agents: ["codex"] },
      hold_changes: false,
      timeouts: { call: 5 },
      limits: { concurrency: 2 },
    };
    expect(declarationFromForm(formFromDeclaration("calc", "internet", declaration), declaration)).toEqual(declaration);
  });
  it("of a program has no address", () => {
    expect(declarationFromForm({ ...local, url: "http://x", headers: [{ name: "A", value: "b" }] })).toEqual({
      name: "calc",
      kind: "local",
      command: ["python3", "server.py"],
      env: {},
      tools: { allow: [], deny: [], rename: {} },
      access: { users: [], agents: [] },
      hold_changes: true,
    });
  });
});

describe("addresses to open", () => {
  it("are those of web pages only", () => {
    expect(isWebAddress("https://login.example/authorize?x=1")).toBe(true);
    for (const text of ["javascript:alert(1)", "data:text/html,x", "/relative", ""])
      expect(isWebAddress(text)).toBe(false);
  });
});

describe("command lines", () => {
  it("are split as by a shell", () => {
    expect(splitWords(`a 'b c' "d \\"e" f\\ g ''`)).toEqual(["a", "b c", 'd "e', "f g", ""]);
    expect(splitWords('a "b')).toBeNull();
  });
  it("survive joining and splitting", () => {
    fc.assert(
      fc.property(fc.array(fc.string()), (words) => {
        expect(splitWords(joinWords(words))).toEqual(words);
      }),
    );
  });
});

describe("credentials", () => {
  it("are noticed unless they are secrets", () => {
    expect(looksLikeCredential({ name: "Authorization", value: "Bearer abc" })).toBe(true);
    expect(looksLikeCredential({ name: "Authorization", value: BY_SECRET })).toBe(false);
    expect(looksLikeCredential({ name: "X-Api-Key", value: HIDDEN_VALUE })).toBe(false);
    expect(looksLikeCredential({ name: "X-Team", value: "research" })).toBe(false);
  });
});
