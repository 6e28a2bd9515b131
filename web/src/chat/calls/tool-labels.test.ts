import { describe, expect, it } from "vitest";
import { identifyTool, summarizeArguments, toolCategory, toolPanelView } from "./tool-labels";

describe("tool labels", () => {
  it("derive the category from the tool's name", () => {
    const categories = {
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
      request_network_access: "network",
      toast_bread: "other",
    };
    expect(Object.fromEntries(Object.keys(categories).map((tool) => [tool, toolCategory(tool)]))).toEqual(categories);
  });

  it("summarize the arguments in one line", () => {
    expect(summarizeArguments("run_shell_command", { timeout: 3, command: "ls -la\n  /tmp" })).toBe("ls -la /tmp");
    expect(summarizeArguments("click_mouse", { x: 3, y: 4, button: "left" })).toBe("3, 4");
    expect(summarizeArguments("move_file", { source: "/a", destination: "/b" })).toBe("/a → /b");
    expect(summarizeArguments("toast_bread", { slices: 2, dark: true, more: {} })).toBe("slices: 2, dark: true");
    expect(summarizeArguments("toast_bread", null)).toBe("");
    expect(summarizeArguments("run_shell_command", { command: "x".repeat(1e6) }).length).toBe(160);
  });

  it("find tool and kind in a full name", () => {
    const identifyByName = (name: string) => identifyTool({ tool: "", name, kind: null }, ["linux", "browser"]);
    expect(identifyByName("linux_write_file")).toEqual({ tool: "write_file", kind: "linux" });
    expect(identifyByName("browser_click")).toEqual({ tool: "browser_click", kind: "browser" });
    expect(identifyByName("browser_read_file")).toEqual({ tool: "read_file", kind: "browser" });
    expect(identifyByName("ask_user")).toEqual({ tool: "ask_user", kind: null });
    expect(identifyTool({ tool: "linux_scroll", name: "linux_scroll", kind: null }, ["linux"])).toEqual({
      tool: "scroll",
      kind: "linux",
    });
    expect(identifyTool({ tool: "write_file", name: "linux_write_file", kind: "linux" })).toEqual({
      tool: "write_file",
      kind: "linux",
    });
  });

  it("find the MCP server of a call", () => {
    expect(identifyTool({ tool: "read_file", name: "my-tracker_read_file", kind: null }, ["my"])).toEqual({
      tool: "read_file",
      kind: null,
      server: "my-tracker",
    });
    expect(identifyTool({ tool: "ask_user", name: "ask_user", kind: null }).server).toBeUndefined();
    expect(identifyTool({ tool: "write_file", name: "linux_write_file", kind: "linux" }).server).toBeUndefined();
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
