import { describe, expect, it } from "vitest";
import { argumentSummary, identifyTool, toolCategory, toolPanelView } from "./tool-labels";

describe("tool labels", () => {
  it("derive the category from the tool's name", () => {
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
    expect(Object.fromEntries(Object.keys(sorts).map((tool) => [tool, toolCategory(tool)]))).toEqual(sorts);
  });

  it("summarize the arguments in one line", () => {
    expect(argumentSummary("run_shell_command", { timeout: 3, command: "ls -la\n  /tmp" })).toBe("ls -la /tmp");
    expect(argumentSummary("click_mouse", { x: 3, y: 4, button: "left" })).toBe("3, 4");
    expect(argumentSummary("move_file", { source: "/a", destination: "/b" })).toBe("/a → /b");
    expect(argumentSummary("toast_bread", { slices: 2, dark: true, more: {} })).toBe("slices: 2, dark: true");
    expect(argumentSummary("toast_bread", null)).toBe("");
    expect(argumentSummary("run_shell_command", { command: "x".repeat(1e6) }).length).toBe(160);
  });

  it("find tool and kind in a full name", () => {
    const bare = (name: string) => identifyTool({ tool: "", name, kind: null }, ["linux", "browser"]);
    expect(bare("linux_write_file")).toEqual({ tool: "write_file", kind: "linux" });
    expect(bare("browser_click")).toEqual({ tool: "browser_click", kind: "browser" });
    expect(bare("browser_read_file")).toEqual({ tool: "read_file", kind: "browser" });
    expect(bare("ask_user")).toEqual({ tool: "ask_user", kind: null });
    expect(identifyTool({ tool: "linux_scroll", name: "linux_scroll", kind: null }, ["linux"])).toEqual({
      tool: "scroll",
      kind: "linux",
    });
    expect(identifyTool({ tool: "write_file", name: "linux_write_file", kind: "linux" })).toEqual({
      tool: "write_file",
      kind: "linux",
    });
  });

  it("choose the panel view", () => {
    expect(["run_shell_command", "write_file", "click_mouse", "update_plan"].map(toolPanelView)).toEqual([
      "terminal",
      "files",
      "desktop",
      "output",
    ]);
  });
});
