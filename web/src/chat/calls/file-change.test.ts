import { describe, expect, it } from "vitest";
import { isFileWrite, replacementTexts, writtenText } from "./file-change";

describe("the file change of a call", () => {
  it("has an absolute path", () => {
    expect(writtenText({ path: "a/b.txt" })).toBe("/workspace/a/b.txt");
    expect(writtenText({ path: "./b.txt" })).toBe("/workspace/b.txt");
    expect(writtenText({ file_path: "/etc/hosts" })).toBe("/etc/hosts");
    expect(writtenText({ path: "C:\\a.txt" })).toBe("C:\\a.txt");
    expect(writtenText({ path: 3 })).toBe("");
  });

  it("is recognized by tool and content", () => {
    expect(isFileWrite("write_file", { path: "a", content: "" })).toBe(true);
    expect(isFileWrite("create_directory", { path: "a" })).toBe(false);
    expect(isFileWrite("run_shell_command", { command: "ls" })).toBe(false);
  });

  it("has two texts for replacing tools", () => {
    expect(replacementTexts({ file_path: "/a", old_string: "x", new_string: "y" })).toEqual({
      before: "x",
      after: "y",
      rest: { file_path: "/a" },
    });
    expect(replacementTexts({ old: "x" })).toBeNull();
  });
});
