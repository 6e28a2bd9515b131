import { describe, expect, it } from "vitest";
import { findTextReplacement, isFileWriteCall, writtenFilePath } from "./file-change";

describe("the file change of a call", () => {
  it("has an absolute path", () => {
    expect(writtenFilePath({ path: "a/b.txt" })).toBe("/workspace/a/b.txt");
    expect(writtenFilePath({ path: "./b.txt" })).toBe("/workspace/b.txt");
    expect(writtenFilePath({ file_path: "/etc/hosts" })).toBe("/etc/hosts");
    expect(writtenFilePath({ path: "C:\\a.txt" })).toBe("C:\\a.txt");
    expect(writtenFilePath({ path: 3 })).toBe("");
  });

  it("is recognized by tool and content", () => {
    expect(isFileWriteCall("write_file", { path: "a", content: "" })).toBe(true);
    expect(isFileWriteCall("create_directory", { path: "a" })).toBe(false);
    expect(isFileWriteCall("run_shell_command", { command: "ls" })).toBe(false);
  });

  it("has two texts for replacing tools", () => {
    expect(findTextReplacement({ file_path: "/a", old_string: "x", new_string: "y" })).toEqual({
      before: "x",
      after: "y",
      rest: { file_path: "/a" },
    });
    expect(findTextReplacement({ old: "x" })).toBeNull();
  });
});
