import { describe, expect, it } from "vitest";
import { argumentsOf, type Rule, toolOf } from "./rules";

const rule: Rule = { tool: "*", kind: "*", arguments: {}, exact: false, action: "ask" };

describe("a rule", () => {
  it("names its tool and kind", () => {
    expect(toolOf(rule)).toBeNull();
    expect(toolOf({ ...rule, tool: "write_file" })).toBe("write_file");
    expect(toolOf({ ...rule, tool: "click", kind: "linux" })).toBe("linux: click");
    expect(toolOf({ ...rule, kind: "linux" })).toBe("linux: *");
  });
  it("tells arguments that may have company from those that may not", () => {
    expect(argumentsOf(rule)).toBeNull();
    expect(argumentsOf({ ...rule, arguments: { path: "/a/*" } })).toBe("path = /a/*, …");
    expect(argumentsOf({ ...rule, arguments: { path: "/a" }, exact: true })).toBe("path = /a");
    expect(argumentsOf({ ...rule, exact: true })).toBe("()");
  });
});
