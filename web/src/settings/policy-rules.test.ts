import { describe, expect, it } from "vitest";
import { type PolicyRule, ruleArguments, ruleTool } from "./policy-rules";

const rule: PolicyRule = { tool: "*", kind: "*", arguments: {}, exact: false, action: "ask" };

describe("a rule", () => {
  it("names its tool and kind", () => {
    expect(ruleTool(rule)).toBeNull();
    expect(ruleTool({ ...rule, tool: "write_file" })).toBe("write_file");
    expect(ruleTool({ ...rule, tool: "click", kind: "linux" })).toBe("linux: click");
    expect(ruleTool({ ...rule, kind: "linux" })).toBe("linux: *");
  });
  it("distinguishes exact from partial arguments", () => {
    expect(ruleArguments(rule)).toBeNull();
    expect(ruleArguments({ ...rule, arguments: { path: "/a/*" } })).toBe("path = /a/*, …");
    expect(ruleArguments({ ...rule, arguments: { path: "/a" }, exact: true })).toBe("path = /a");
    expect(ruleArguments({ ...rule, exact: true })).toBe("()");
  });
});
