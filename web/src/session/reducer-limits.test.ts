import { describe, expect, it } from "vitest";
import type { SessionEvent } from "@/api/session-events";
import { longEventLog } from "./fixtures/event-logs";
import { applySessionEvents, emptyView } from "./reducer";
import { viewForTool } from "./tool-view";

const whole = (log: readonly SessionEvent[]) => applySessionEvents(emptyView(), log);

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
    expect(tools.map(viewForTool)).toEqual(tools.map(() => view));
  });
});

describe("hostile and unknown input", () => {
  it("accepts names of object properties as ids", () => {
    const told = (number: number, type: string, data: object) => ({ number, at: "", type, data }) as SessionEvent;
    const log = [
      told(1, "message.started", { message_id: "m", turn: 1, step: 1 }),
      ...["__proto__", "constructor"].flatMap((call_id, place) => [
        told(2 + 3 * place, "call.delta", { call_id, text: "?" }),
        told(3 + 3 * place, "call.started", { message_id: "m", call_id, name: "x" }),
        told(4 + 3 * place, "call.delta", { call_id, text: "{}" }),
      ]),
    ];
    const view = whole(log);
    expect(Object.keys(view.calls)).toEqual(["__proto__", "constructor"]);
    expect(Object.values(view.calls).map((each) => each.written)).toEqual(["{}", "{}"]);
    expect(({} as Record<string, unknown>).written).toBeUndefined();
  });
});

describe("live output of a call", () => {
  const told = (number: number, type: string, data: object) => ({ number, at: "", type, data }) as SessionEvent;
  const said = (number: number, text: string) => told(number, "call.output", { call_id: "c", text });
  const begun = [
    told(1, "message.started", { message_id: "m", turn: 1, step: 1 }),
    told(2, "call.started", { message_id: "m", call_id: "c", name: "x" }),
  ];
  const running = [...begun, said(3, "early"), told(4, "call.running", { call_id: "c" })];
  const output = (log: SessionEvent[]) => whole(log).calls.c?.output;

  it("is kept from its beginning to its end", () => {
    expect(output(running)).toBe("");
    expect(output([...running, said(5, "one\n"), said(6, "two")])).toBe("one\ntwo");
    const ended = told(7, "call.result", { call_id: "c", result: { content: [] } });
    expect(output([...running, said(5, "one\n"), said(6, "two"), ended, said(8, "late")])).toBe("");
    expect(whole([told(1, "call.output", { call_id: "nobody", text: "x" })]).calls).toEqual({});
  });

  it("is bounded and keeps the end", () => {
    const many = Array.from({ length: 100 }, (_, place) => said(5 + place, `${place}${"x".repeat(999)}`));
    const kept = output([...running, ...many]) ?? "";
    expect(kept).toHaveLength(16 * 1024);
    expect(kept.endsWith(`99${"x".repeat(999)}`)).toBe(true);
    expect(output([...running, said(5, `${"\u{1f600}".repeat(10_000)}a`)])).toBe(`${"\u{1f600}".repeat(8191)}a`);
  });
});

describe("5,000 events", () => {
  it("take little more time than parsing them", () => {
    const log = longEventLog(5000);
    const text = JSON.stringify(log);
    const best = (work: () => unknown) =>
      Math.min(
        ...Array.from({ length: 7 }, () => {
          const began = performance.now();
          work();
          return performance.now() - began;
        }),
      );
    const reading = best(() => JSON.parse(text));
    expect(log).toHaveLength(5000);
    expect(whole(log.toReversed())).toEqual(whole(log));
    expect(best(() => whole(log)) / reading).toBeLessThan(4);
    expect(best(() => whole(log.toReversed())) / reading).toBeLessThan(10);
  });
});
