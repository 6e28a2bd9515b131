import { expect, it } from "vitest";
import type { Schema } from "@/api/types";
import { answeringModel } from "./answering-model";

const SCRIPT = { code: "SCRIPT_ANSWERS", level: "notice", field: "llm.model", message: "", params: {} };
const issues = (...found: unknown[]) => found as Schema<"TaskIssueResponse">[];

it("is a script where the server says so, also if a scripted provider has a model name", () => {
  expect(answeringModel({ issues: issues(SCRIPT), models: [] })).toEqual({ scripted: true });
  expect(answeringModel({ issues: issues(SCRIPT), models: ["fast"] })).toEqual({ scripted: true });
});

it("is the real models of the runs otherwise, and nothing without a model", () => {
  expect(answeringModel({ issues: [], models: ["claude-sonnet-4-5"] })).toEqual({
    scripted: false,
    models: ["claude-sonnet-4-5"],
  });
  expect(answeringModel({ issues: [], models: [] })).toBeNull();
  expect(answeringModel(null)).toBeNull();
});
