import { describe, expect, it } from "vitest";
import type { Approval } from "@/api/types";
import { approvalActionForKey, lineShowsWholeCall } from "./approval-shortcuts";

const key = (name: string, more: Partial<KeyboardEvent> = {}) =>
  approvalActionForKey({ key: name, ctrlKey: false, metaKey: false, altKey: false, repeat: false, ...more });

describe("approval shortcuts", () => {
  it("are a, r, and Enter with Ctrl or Command", () => {
    expect([key("a"), key("r"), key("Enter", { ctrlKey: true }), key("Enter", { metaKey: true })]).toEqual([
      "approve",
      "reject",
      "approve",
      "approve",
    ]);
  });

  it("exclude browser shortcuts and repeated keys", () => {
    expect([
      key("Enter"),
      key("a", { ctrlKey: true }),
      key("r", { ctrlKey: true }),
      key("a", { repeat: true }),
      key("a", { altKey: true }),
      key("A"),
    ]).toEqual([null, null, null, null, null, null]);
  });
});

describe("a summary line", () => {
  const approval = (args: Record<string, unknown>) => ({ arguments: args }) as Approval;

  it("is sufficient only if it shows everything", () => {
    expect(lineShowsWholeCall("ls", approval({ command: "ls" }))).toBe(true);
    expect(lineShowsWholeCall("ls", approval({ command: "ls", cwd: null }))).toBe(true);
    expect(lineShowsWholeCall("ls", approval({ command: "ls", cwd: "/etc" }))).toBe(false);
    expect(lineShowsWholeCall("ls rm", approval({ command: "ls\nrm" }))).toBe(false);
    expect(lineShowsWholeCall("x…", approval({ command: "xy" }))).toBe(false);
  });
});
