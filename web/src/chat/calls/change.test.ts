import { describe, expect, it } from "vitest";
import { isWrite, replaced, writtenTo } from "./change";

describe("what a call would change", () => {
  it("is at a whole path", () => {
    expect(writtenTo({ path: "a/b.txt" })).toBe("/workspace/a/b.txt");
    expect(writtenTo({ path: "./b.txt" })).toBe("/workspace/b.txt");
    expect(writtenTo({ file_path: "/etc/hosts" })).toBe("/etc/hosts");
    expect(writtenTo({ path: "C:\\a.txt" })).toBe("C:\\a.txt");
    expect(writtenTo({ path: 3 })).toBe("");
  });

  it("is known by the tool and its content", () => {
    expect(isWrite("write_file", { path: "a", content: "" })).toBe(true);
    expect(isWrite("create_directory", { path: "a" })).toBe(false);
    expect(isWrite("run_shell_command", { command: "ls" })).toBe(false);
  });

  it("is two texts for tools that replace", () => {
    expect(replaced({ file_path: "/a", old_string: "x", new_string: "y" })).toEqual({
      before: "x",
      after: "y",
      rest: { file_path: "/a" },
    });
    expect(replaced({ old: "x" })).toBeNull();
  });
});
