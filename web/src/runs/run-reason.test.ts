import { renderHook } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { chooseLanguage } from "@/i18n";
import type { RunDetail, RunResult } from "./api";
import { useRunExplanation } from "./run-reason";

afterEach(() => chooseLanguage("en"));

type Ending = Pick<RunResult, "code" | "reason"> & Partial<RunResult>;

function explain(ending: Ending): string {
  const { state = "failed", ...rest } = ending;
  const result = { state, endedBy: "exit", exitCode: 0, params: {}, missing: [], checks: [], ...rest };
  const run = { state, result } as unknown as RunDetail;
  return renderHook(() => useRunExplanation(run, "release")).result.current;
}

const SILENT: Ending = {
  code: "EXITED_SILENT",
  reason: "the agent finished (exit code 0) without a request to the model and without output",
};
const EARLY: Ending = {
  code: "EXITED_EARLY",
  reason: "the program finished (exit code 0) before any end condition was met",
};
const FAILED: Ending = {
  code: "EXITED",
  reason: "the agent ended with exit code 2; its last line: no space left; the last answer of the model: 529 busy",
  params: { exit_code: "2", detail: "no space left; 529 busy" },
  exitCode: 2,
};
const SUCCEEDED: Ending = {
  state: "succeeded",
  code: "EXITED",
  reason: "the program finished (exit code 0)",
  params: { exit_code: "0", detail: "" },
};

describe("why a run ended", () => {
  it.each([
    [SILENT, "The agent finished (exit code 0) without a request to the model and without output."],
    [EARLY, "The program finished (exit code 0) before any end condition was met."],
    [FAILED, "The agent ended with exit code 2; its last line: no space left; the last answer of the model: 529 busy."],
    [SUCCEEDED, "The program finished (exit code 0)."],
    [{ ...SUCCEEDED, code: "CHECKS_PASSED", endedBy: "verified", reason: "all checks pass" }, "All checks passed."],
  ] satisfies [Ending, string][])("is told once in English: %o", (ending, text) => {
    expect(explain(ending)).toBe(text);
  });

  it.each([
    [SILENT, "智能体已结束（退出码 0），但没有请求过模型，也没有输出任何内容。"],
    [EARLY, "程序已结束（退出码 0），但没有满足任何结束条件。"],
    [FAILED, "智能体已结束（退出码 2）。 详情：no space left; 529 busy"],
    [{ ...SUCCEEDED, reason: "the agent finished (exit code 0)" }, "智能体已完成（退出码 0）。"],
    [SUCCEEDED, "程序已结束（退出码 0）。"],
  ] satisfies [Ending, string][])("is told once in Chinese: %o", async (ending, text) => {
    await chooseLanguage("zh");
    expect(explain(ending)).toBe(text);
  });

  it("is the server's reason where the console has no text for it", async () => {
    const unknown: Ending = { code: "NEW", reason: "the program ended with exit code 3", exitCode: 3 };
    expect(explain(unknown)).toBe("The program ended with exit code 3.");
    await chooseLanguage("zh");
    expect(explain(unknown)).toBe("The program ended with exit code 3.");
  });

  it.each([
    ["en", "The provider acme refused its key. Check ACME_KEY and restart the server."],
    ["zh", "提供方 acme 拒绝了其密钥。请检查 ACME_KEY，然后重启服务器。"],
  ] as const)("is the refused key, not the deliverables that are missing because of it: %s", async (language, text) => {
    await chooseLanguage(language);
    const missing = [{ path: "/workspace/report.md", required: true, reason: "none" }];
    const params = { provider: "acme", key_setting: "ACME_KEY", exit_code: "1", detail: "401" };
    const refused: Ending = { code: "PROVIDER_KEY_REFUSED", reason: "the agent failed: 401", params, missing };
    expect(explain(refused)).toBe(text);
  });

  it("names what is missing instead of the exit's reason", () => {
    const missing = [{ path: "/workspace/report.md", required: true, reason: "none" }];
    const text = explain({ code: "DELIVERABLES_MISSING", reason: "deliverables are missing: report.md", missing });
    expect(text).toBe("The program finished (exit code 0). Missing deliverable: report.md.");
  });
});
