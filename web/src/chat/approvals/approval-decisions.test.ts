import { describe, expect, it } from "vitest";
import type { Approval } from "@/api/types";
import {
  approvableApprovals,
  argumentFieldKind,
  buildApprovalDecision,
  parseCallArguments,
} from "./approval-decisions";

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
    const identity = { approval: "approval-1", digest: "abc" };
    expect(buildApprovalDecision(APPROVAL, { action: "approve" })).toEqual({ ...identity, action: "approve" });
    expect(buildApprovalDecision(APPROVAL, { action: "approve", always: "tool" })).toEqual({
      ...identity,
      action: "approve",
      always: "tool",
    });
    expect(buildApprovalDecision(APPROVAL, { action: "reject", reason: "  " })).toEqual({
      ...identity,
      action: "reject",
    });
    expect(buildApprovalDecision(APPROVAL, { action: "reject", reason: " no " })).toEqual({
      ...identity,
      action: "reject",
      reason: "no",
    });
    expect(buildApprovalDecision(APPROVAL, { action: "edit", arguments: { command: "id" } })).toMatchObject({
      action: "edit",
      arguments: { command: "id" },
    });
    expect(buildApprovalDecision(APPROVAL, { action: "answer", answer: "B" })).toMatchObject({ answer: "B" });
  });

  it("for all at once skips questions", () => {
    const question: Approval = { ...APPROVAL, id: "2", type: "question", actions: ["answer"] };
    expect(approvableApprovals([APPROVAL, question]).map((each) => each.id)).toEqual(["approval-1"]);
  });
});

describe("edited arguments", () => {
  it("must be one JSON object", () => {
    expect(parseCallArguments('{"a": 1}')).toEqual({ value: { a: 1 } });
    expect(parseCallArguments("[1]")).toEqual({ error: "object" });
    expect(parseCallArguments("null")).toEqual({ error: "object" });
    expect(parseCallArguments("{")).toHaveProperty("error");
  });

  it("use a control by type", () => {
    expect(["x", 3, true, null, [1]].map(argumentFieldKind)).toEqual(["text", "number", "switch", "json", "json"]);
  });
});
