import { describe, expect, it } from "vitest";
import type { SessionEvent } from "@/api/session-events";
import { buildLongEventLog } from "./fixtures/event-logs";
import { applySessionEvents, emptySessionView } from "./reducer";
import { sandboxViewForTool } from "./sandbox-view-for-tool";

const viewOf = (log: readonly SessionEvent[]) => applySessionEvents(emptySessionView(), log);

describe("the view that shows a tool", () => {
  it.each([
    ["terminal", ["run_shell_command", "run_ipython_cell", "start_terminal", "code_execute"]],
    [
      "desktop",
      ["click_mouse", "press_keys", "input_text", "start_app", "screenshot", "browser_upload", "mobile_swipe"],
    ],
    ["files", ["read_file", "write_file", "list_directory", "move_file", "code_edit"]],
    ["output", ["think", ""]],
  ])("is the %s", (view, tools) => {
    expect(tools.map(sandboxViewForTool)).toEqual(tools.map(() => view));
  });
});

describe("hostile and unknown input", () => {
  it("accepts names of object properties as ids", () => {
    const event = (number: number, type: string, data: object) => ({ number, at: "", type, data }) as SessionEvent;
    const log = [
      event(1, "message.started", { message_id: "m", turn: 1, step: 1 }),
      ...["__proto__", "constructor"].flatMap((call_id, index) => [
        event(2 + 3 * index, "call.delta", { call_id, text: "?" }),
        event(3 + 3 * index, "call.started", { message_id: "m", call_id, name: "x" }),
        event(4 + 3 * index, "call.delta", { call_id, text: "{}" }),
      ]),
    ];
    const view = viewOf(log);
    expect(Object.keys(view.calls)).toEqual(["__proto__", "constructor"]);
    expect(Object.values(view.calls).map((each) => each.argumentsJson)).toEqual(["{}", "{}"]);
    expect(({} as Record<string, unknown>).written).toBeUndefined();
  });
});

describe("live output of a call", () => {
  const event = (number: number, type: string, data: object) => ({ number, at: "", type, data }) as SessionEvent;
  const outputEvent = (number: number, text: string) => event(number, "call.output", { call_id: "c", text });
  const startEvents = [
    event(1, "message.started", { message_id: "m", turn: 1, step: 1 }),
    event(2, "call.started", { message_id: "m", call_id: "c", name: "x" }),
  ];
  const running = [...startEvents, outputEvent(3, "early"), event(4, "call.running", { call_id: "c" })];
  const output = (log: SessionEvent[]) => viewOf(log).calls.c?.output;

  it("is kept only while the call runs", () => {
    expect(output(running)).toBe("");
    expect(output([...running, outputEvent(5, "one\n"), outputEvent(6, "two")])).toBe("one\ntwo");
    const ended = event(7, "call.result", { call_id: "c", result: { content: [] } });
    expect(output([...running, outputEvent(5, "one\n"), outputEvent(6, "two"), ended, outputEvent(8, "late")])).toBe(
      "",
    );
    expect(viewOf([event(1, "call.output", { call_id: "nobody", text: "x" })]).calls).toEqual({});
  });

  it("is bounded and keeps the end", () => {
    const many = Array.from({ length: 100 }, (_, index) => outputEvent(5 + index, `${index}${"x".repeat(999)}`));
    const keptOutput = output([...running, ...many]) ?? "";
    expect(keptOutput).toHaveLength(16 * 1024);
    expect(keptOutput.endsWith(`99${"x".repeat(999)}`)).toBe(true);
    expect(output([...running, outputEvent(5, `${"\u{1f600}".repeat(10_000)}a`)])).toBe(`${"\u{1f600}".repeat(8191)}a`);
  });
});

describe("5,000 events", () => {
  it("take little more time than parsing them", () => {
    const log = buildLongEventLog(5000);
    const text = JSON.stringify(log);
    const best = (action: () => unknown) =>
      Math.min(
        ...Array.from({ length: 7 }, () => {
          const startedAt = performance.now();
          action();
          return performance.now() - startedAt;
        }),
      );
    const reading = best(() => JSON.parse(text));
    expect(log).toHaveLength(5000);
    expect(viewOf(log.toReversed())).toEqual(viewOf(log));
    expect(best(() => viewOf(log)) / reading).toBeLessThan(4);
    expect(best(() => viewOf(log.toReversed())) / reading).toBeLessThan(10);
  });
});
