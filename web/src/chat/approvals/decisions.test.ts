import { describe, expect, it } from "vitest";
import type { Approval } from "@/api/types";
import { approvableApprovals, argumentFieldKind, buildDecision, parseArguments } from "./decisions";

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
  it("contains approval, digest and only chosen fields", () => {
    const named = { approval: "approval-1", digest: "abc" };
    expect(buildDecision(APPROVAL, { action: "approve" })).toEqual({ ...named, action: "approve" });
    expect(buildDecision(APPROVAL, { action: "approve", always: "tool" })).toEqual({
      ...named,
      action: "approve",
      always: "tool",
    });
    expect(buildDecision(APPROVAL, { action: "reject", reason: "  " })).toEqual({ ...named, action: "reject" });
    expect(buildDecision(APPROVAL, { action: "reject", reason: " no " })).toEqual({
      ...named,
      action: "reject",
      reason: "no",
    });
    expect(buildDecision(APPROVAL, { action: "edit", arguments: { command: "id" } })).toMatchObject({
      action: "edit",
      arguments: { command: "id" },
    });
    expect(buildDecision(APPROVAL, { action: "answer", answer: "B" })).toMatchObject({ answer: "B" });
  });

  it("for all at once skips questions", () => {
    const question: Approval = { ...APPROVAL, id: "2", type: "question", actions: ["answer"] };
    expect(approvableApprovals([APPROVAL, question]).map((each) => each.id)).toEqual(["approval-1"]);
  });
});

describe("edited arguments", () => {
  it("must be one JSON object", () => {
    expect(parseArguments('{"a": 1}')).toEqual({ value: { a: 1 } });
    expect(parseArguments("[1]")).toEqual({ error: "object" });
    expect(parseArguments("null")).toEqual({ error: "object" });
    expect(parseArguments("{")).toHaveProperty("error");
  });

  it("use a control by type", () => {
    expect(["x", 3, true, null, [1]].map(argumentFieldKind)).toEqual(["text", "number", "switch", "json", "json"]);
  });
});
