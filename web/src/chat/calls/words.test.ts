import { describe, expect, it } from "vitest";
import { known, sortOf, summaryOf, viewOf } from "./words";

describe("what people read of a tool", () => {
  it("knows the sort by the tool's name", () => {
    const sorts = {
      run_shell_command: "command",
      run_ipython_cell: "python",
      write_file: "write",
      create_directory: "write",
      read_file: "read",
      list_directory: "list",
      move_file: "move",
      delete_file: "delete",
      screenshot: "look",
      browser_screenshot: "browser",
      mobile_swipe: "phone",
      click_mouse: "mouse",
      input_text: "keyboard",
      start_app: "window",
      move_between_sandboxes: "transfer",
      ask_user: "question",
      toast_bread: "other",
    };
    expect(Object.fromEntries(Object.keys(sorts).map((tool) => [tool, sortOf(tool)]))).toEqual(sorts);
  });

  it("tells in one line what a call is given", () => {
    expect(summaryOf("run_shell_command", { timeout: 3, command: "ls -la\n  /tmp" })).toBe("ls -la /tmp");
    expect(summaryOf("click_mouse", { x: 3, y: 4, button: "left" })).toBe("3, 4");
    expect(summaryOf("move_file", { source: "/a", destination: "/b" })).toBe("/a → /b");
    expect(summaryOf("toast_bread", { slices: 2, dark: true, more: {} })).toBe("slices: 2, dark: true");
    expect(summaryOf("toast_bread", null)).toBe("");
    expect(summaryOf("run_shell_command", { command: "x".repeat(1e6) }).length).toBe(160);
  });

  it("finds the tool and its kind where only the whole name is told", () => {
    const bare = (name: string) => known({ tool: "", name, kind: null }, ["linux", "browser"]);
    expect(bare("linux_write_file")).toEqual({ tool: "write_file", kind: "linux" });
    expect(bare("browser_click")).toEqual({ tool: "browser_click", kind: "browser" });
    expect(bare("browser_read_file")).toEqual({ tool: "read_file", kind: "browser" });
    expect(bare("ask_user")).toEqual({ tool: "ask_user", kind: null });
    expect(known({ tool: "linux_scroll", name: "linux_scroll", kind: null }, ["linux"])).toEqual({
      tool: "scroll",
      kind: "linux",
    });
    expect(known({ tool: "write_file", name: "linux_write_file", kind: "linux" })).toEqual({
      tool: "write_file",
      kind: "linux",
    });
  });

  it("knows where to look on", () => {
    expect(["run_shell_command", "write_file", "click_mouse", "update_plan"].map(viewOf)).toEqual([
      "terminal",
      "files",
      "desktop",
      "output",
    ]);
  });
});
