import { describe, expect, it } from "vitest";
import type { Approval } from "@/api/types";
import { approvable, decisionOf, fieldKind, parseArguments } from "./deciding";

const APPROVAL: Approval = {
  id: "approval-1",
  session: "ses-1",
  tenant: "default",
  turn: 1,
  call_id: "call-1",
  type: "call",
  name: "code_run_shell_command",
  kind: "code",
  arguments: { command: "ls" },
  digest: "abc",
  question: "",
  choices: [],
  actions: ["approve", "edit", "reject", "answer"],
  state: "pending",
  created_at: "2026-01-01T00:00:00Z",
};

describe("a decision", () => {
  it("names the approval and the digest of what was shown, and nothing that was not chosen", () => {
    const named = { approval: "approval-1", digest: "abc" };
    expect(decisionOf(APPROVAL, { action: "approve" })).toEqual({ ...named, action: "approve" });
    expect(decisionOf(APPROVAL, { action: "approve", always: "tool" })).toEqual({
      ...named,
      action: "approve",
      always: "tool",
    });
    expect(decisionOf(APPROVAL, { action: "reject", reason: "  " })).toEqual({ ...named, action: "reject" });
    expect(decisionOf(APPROVAL, { action: "reject", reason: " no " })).toEqual({
      ...named,
      action: "reject",
      reason: "no",
    });
    expect(decisionOf(APPROVAL, { action: "edit", arguments: { command: "id" } })).toMatchObject({
      action: "edit",
      arguments: { command: "id" },
    });
    expect(decisionOf(APPROVAL, { action: "answer", answer: "B" })).toMatchObject({ answer: "B" });
  });

  it("for all at once leaves out questions", () => {
    const question: Approval = { ...APPROVAL, id: "2", type: "question", actions: ["answer"] };
    expect(approvable([APPROVAL, question]).map((each) => each.id)).toEqual(["approval-1"]);
  });
});

describe("arguments that a person wrote", () => {
  it("must be one JSON object", () => {
    expect(parseArguments('{"a": 1}')).toEqual({ value: { a: 1 } });
    expect(parseArguments("[1]")).toEqual({ error: "object" });
    expect(parseArguments("null")).toEqual({ error: "object" });
    expect(parseArguments("{")).toHaveProperty("error");
  });

  it("are edited by what they are", () => {
    expect(["x", 3, true, null, [1]].map(fieldKind)).toEqual(["text", "number", "switch", "json", "json"]);
  });
});
