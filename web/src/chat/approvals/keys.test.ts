import { describe, expect, it } from "vitest";
import type { Approval } from "@/api/types";
import { pressOf, wholeIn } from "./keys";

const key = (name: string, more: Partial<KeyboardEvent> = {}) =>
  pressOf({ key: name, ctrlKey: false, metaKey: false, altKey: false, repeat: false, ...more });

describe("keys that decide", () => {
  it("are a, r, and Enter with Ctrl or Command", () => {
    expect([key("a"), key("r"), key("Enter", { ctrlKey: true }), key("Enter", { metaKey: true })]).toEqual([
      "approve",
      "reject",
      "approve",
      "approve",
    ]);
  });

  it("are not those of the browser, nor ones that are held down", () => {
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

describe("one line", () => {
  const approval = (given: Record<string, unknown>) => ({ arguments: given }) as Approval;

  it("is enough to decide only if it says everything", () => {
    expect(wholeIn("ls", approval({ command: "ls" }))).toBe(true);
    expect(wholeIn("ls", approval({ command: "ls", cwd: null }))).toBe(true);
    expect(wholeIn("ls", approval({ command: "ls", cwd: "/etc" }))).toBe(false);
    expect(wholeIn("ls rm", approval({ command: "ls\nrm" }))).toBe(false);
    expect(wholeIn("x…", approval({ command: "xy" }))).toBe(false);
  });
});
