import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { SessionEvent } from "@/api/session-events";
import { eventLogs } from "./fixtures/event-logs";
import report from "./fixtures/report.json";
import screen from "./fixtures/screen.json";
import stopped from "./fixtures/stopped.json";
import { applySessionEvents, emptySessionView } from "./reducer";
import type { AnswerItem, SessionView } from "./types";
import { pendingApprovals } from "./types";

const RECORDED = { report, screen, stopped } as unknown as Record<string, SessionEvent[]>;
const recorded = (name: keyof typeof RECORDED) => RECORDED[name] ?? [];
const viewOf = (log: readonly SessionEvent[]) => applySessionEvents(emptySessionView(), log);
const viewUpTo = (name: string, number: number) => viewOf(recorded(name).slice(0, number));
const any = fc.oneof(eventLogs, fc.constantFrom(...Object.values(RECORDED)));

/** Delivery orders of a log: shuffled windows with duplicates, in arbitrary batches. */
const deliveryPlan = fc.record({
  seed: fc.integer(),
  window: fc.integer({ min: 1, max: 40 }),
  batch: fc.integer({ min: 1, max: 60 }),
  repeatShare: fc.double({ min: 0, max: 0.5, noNaN: true }),
});

function* pseudoRandom(seed: number): Generator<number, never> {
  for (let state = seed >>> 0; ; ) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    yield state / 2 ** 32;
  }
}

function batches(log: readonly SessionEvent[], plan: typeof deliveryPlan extends fc.Arbitrary<infer T> ? T : never) {
  const random = pseudoRandom(plan.seed);
  const draw = () => random.next().value;
  const shuffled: SessionEvent[] = [];
  for (let start = 0; start < log.length; start += plan.window) {
    const events = log.slice(start, start + plan.window);
    const repeated = log.slice(0, start + plan.window).filter(() => draw() < plan.repeatShare / 10);
    const keyed = [...events, ...repeated].map((event) => ({ event, key: draw() }));
    shuffled.push(...keyed.sort((one, other) => one.key - other.key).map(({ event }) => event));
  }
  const cut: SessionEvent[][] = [];
  for (let start = 0; start < shuffled.length; ) {
    const size = 1 + Math.floor(draw() * plan.batch);
    cut.push(shuffled.slice(start, start + size));
    start += size;
  }
  return cut;
}

function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    Object.values(value).forEach(frozen);
  }
  return value;
}

describe("any delivery order", () => {
  it("gives the same view as one batch", () => {
    fc.assert(
      fc.property(any, deliveryPlan, (log, plan) => {
        const view = batches(log, plan).reduce(applySessionEvents, emptySessionView());
        expect(view).toEqual(viewOf(log));
        expect(Object.keys(view.earlyEvents)).toEqual([]);
      }),
      { numRuns: 300 },
    );
  });

  it("does not change its input", () => {
    fc.assert(
      fc.property(any, deliveryPlan, (log, plan) => {
        batches(frozen(log), plan).reduce(
          (view, events) => frozen(applySessionEvents(frozen(view), events)),
          emptySessionView(),
        );
      }),
      { numRuns: 100 },
    );
  });

  it("keeps unchanged objects identical", () => {
    fc.assert(
      fc.property(any, (log) => {
        log.reduce((before, event) => {
          const after = applySessionEvents(before, [event]);
          for (const name of ["items", "calls", "approvals", "turns"] as const)
            keepsIdentity(before[name], after[name]);
          const data = event.data as { sandbox_id?: string; kind?: string };
          for (const [id, sandbox] of Object.entries(before.sandboxes))
            if (id !== (data.sandbox_id || data.kind)) expect(after.sandboxes[id] ?? sandbox).toBe(sandbox);
          return after;
        }, emptySessionView());
      }),
      { numRuns: 60 },
    );
  });

  it("returns the same view for known events", () => {
    const view = viewOf(recorded("report"));
    expect(applySessionEvents(view, recorded("report").slice(20, 60))).toBe(view);
    expect(applySessionEvents(view, [])).toBe(view);
  });

  it("leaves a consistent view", () => {
    fc.assert(
      fc.property(any, (log) => checkConsistent(viewOf(log))),
      { numRuns: 200 },
    );
  });
});

/** Equal entries must be identical objects; so must unchanged containers. */
function keepsIdentity(before: object, after: object): void {
  if (before === after) return;
  const entriesBefore = Object.entries(before);
  let changed = entriesBefore.length !== Object.keys(after).length;
  for (const [key, oldValue] of entriesBefore) {
    const newValue = (after as Record<string, unknown>)[key];
    if (newValue === oldValue) continue;
    changed = true;
    if (typeof oldValue === "object") expect(newValue).not.toEqual(oldValue);
  }
  expect(changed).toBe(true);
}

function checkConsistent(view: SessionView): void {
  const answers = view.items.filter((each): each is AnswerItem => each.type === "answer");
  const calls = answers.flatMap((each) => each.calls);
  expect([...calls].sort()).toEqual(Object.keys(view.calls).sort());
  for (const answer of answers) {
    expect(answer.isComplete).toBe(true);
    expect(answer.thinking).toBe(false);
    for (const id of answer.calls) expect(view.calls[id]?.answer).toBe(answer.id);
  }
  for (const call of Object.values(view.calls)) if (call.progress !== "running") expect(call.output).toBe("");
  for (const call of Object.values(view.calls)) if (call.approval) expect(view.approvals[call.approval]).toBeDefined();
  expect([...view.sandboxOrder].sort()).toEqual(Object.keys(view.sandboxes).sort());
  if (view.state === "idle") {
    expect(pendingApprovals(view)).toEqual([]);
    expect(Object.values(view.calls).filter((each) => each.progress !== "done")).toEqual([]);
    expect(view.items.filter((each) => each.type === "message" && each.isWaiting)).toEqual([]);
  }
}

describe("a gap", () => {
  const log = recorded("report");

  it("holds back later events until filled", () => {
    const view = applySessionEvents(viewUpTo("report", 10), log.slice(11, 20));
    expect(view.last).toBe(10);
    expect(Object.keys(view.earlyEvents)).toHaveLength(9);
    expect(applySessionEvents(view, log.slice(10, 11))).toEqual(viewUpTo("report", 20));
  });

  it("is ignored once the session is deleted", () => {
    const gone = { ...log[0], number: 500, type: "session.deleted", data: {} } as SessionEvent;
    const view = applySessionEvents(viewUpTo("report", 10), [gone]);
    expect(view.deleted).toBe(true);
    expect(view.items).toHaveLength(2);
  });
});

describe("a recorded report", () => {
  it("appends text and thought", () => {
    expect(viewUpTo("report", 9).items[1]).toMatchObject({
      thought: "The user wants a ",
      thinking: true,
      isComplete: false,
    });
    expect(viewUpTo("report", 12).items[1]).toMatchObject({
      text: "I will make a ",
      thinking: false,
      isComplete: false,
    });
    expect(viewUpTo("report", 18).items[1]).toMatchObject({
      text: "I will make a **plan** and write a file.",
      isComplete: true,
    });
  });

  it("follows a call from start to result", () => {
    const id = "call_a5a5a0862396a439c37e0df7";
    const steps = [16, 17, 18, 23, 24, 29, 33, 37].map((number) => viewUpTo("report", number).calls[id]);
    const progress = ["writing", "writing", "writing", "ready", "asked", "ready", "running", "done"];
    expect(steps.map((each) => each?.progress)).toEqual(progress);
    expect(steps[0]).toMatchObject({ argumentsJson: "", arguments: null, name: "code_write_file" });
    expect(steps[1]?.argumentsJson).toContain('"path": "table.csv"');
    expect(steps[2]?.arguments).toMatchObject({ path: "table.csv" });
    expect(steps[3]).toMatchObject({ kind: "code", tool: "write_file" });
    expect(steps[6]).toMatchObject({ sandbox: null, runningAt: recorded("report")[32]?.at });
  });

  it("assigns a call its sandbox once ready, and focuses it", () => {
    const starting = viewUpTo("report", 34);
    expect(starting.sandboxOrder).toEqual(["code"]);
    expect(starting.sandboxes.code).toMatchObject({ id: "code", state: "starting" });
    expect(starting.attention).toBeNull();
    const view = viewUpTo("report", 35);
    expect(view.sandboxOrder).toEqual(["sb-06ba9c3b5ece8b56"]);
    expect(view.calls.call_a5a5a0862396a439c37e0df7?.sandbox).toBe("sb-06ba9c3b5ece8b56");
    expect(view.attention).toEqual({ sandbox: "sb-06ba9c3b5ece8b56", view: "files", number: 35 });
    expect(viewUpTo("report", 59).attention).toMatchObject({ view: "terminal", number: 59 });
    expect(viewUpTo("report", 36).sandboxes["sb-06ba9c3b5ece8b56"]?.files).toMatchObject([
      { path: "/workspace/table.csv" },
    ]);
  });

  it("reports the image build only while the sandbox starts", () => {
    const event = (number: number, data: object) => ({ ...recorded("report")[33], number, data }) as SessionEvent;
    const starting = { kind: "code", sandbox_id: "", state: "starting" };
    const building = { image: "code", step: "install packages", fraction: 0.4 };
    const before = viewUpTo("report", 34);
    expect(before.sandboxes.code).toMatchObject({ state: "starting", building: null });
    const waiting = applySessionEvents(before, [event(35, { ...starting, building })]);
    expect(waiting.sandboxes.code).toMatchObject({ state: "starting", building });
    expect(waiting.sandboxOrder).toEqual(["code"]);
    const progressed = applySessionEvents(waiting, [
      event(36, { ...starting, building: { ...building, fraction: 0.9 } }),
    ]);
    expect(progressed.sandboxes.code?.building?.fraction).toBe(0.9);
    expect(applySessionEvents(progressed, [event(37, starting)]).sandboxes.code?.building).toBeNull();
    const ready = applySessionEvents(progressed, [event(37, { kind: "code", sandbox_id: "sb-1", state: "ready" })]);
    expect(ready.sandboxes).toMatchObject({ "sb-1": { state: "ready", building: null } });
    const broken = applySessionEvents(progressed, [event(37, { ...starting, state: "broken", reason: "no recipe" })]);
    expect(broken.sandboxes.code).toMatchObject({ state: "broken", building: null });
  });

  it("keeps the terminal view for a command that writes files", () => {
    const path = { kind: "code", sandbox_id: "sb-06ba9c3b5ece8b56", path: "/workspace/b.txt" };
    const file = { ...recorded("report")[35], number: 60, data: path } as SessionEvent;
    expect(applySessionEvents(viewUpTo("report", 59), [file]).attention).toMatchObject({
      view: "terminal",
      number: 59,
    });
  });

  it("tracks approvals and their outcome", () => {
    expect(pendingApprovals(viewUpTo("report", 50)).map((each) => each.id)).toEqual(["approval-d7543821ba454baa"]);
    const view = viewOf(recorded("report"));
    expect(pendingApprovals(view)).toEqual([]);
    expect(Object.values(view.approvals).map((each) => each.state)).toEqual([
      "approved",
      "edited",
      "answered",
      "rejected",
    ]);
    expect(view.approvals["approval-d7543821ba454baa"]?.edited).toEqual({ command: "wc -l < table.csv" });
    expect(view.calls.call_65bc9a2719a0725354257ece?.arguments).toEqual({ command: "wc -l < table.csv" });
    expect(view.approvals["approval-7ace189d6509406c"]).toMatchObject({
      reason: "there is no such file",
      decided_by: "local",
    });
  });

  it("tracks usage per turn, settings and plan", () => {
    const view = viewOf(recorded("report"));
    expect(view).toMatchObject({ title: "A table", budget: 100_000, state: "idle", turn: 1, agent: "langgraph" });
    expect(view.policy?.rules).toHaveLength(1);
    expect(view.plan.map((each) => each.state)).toEqual(["done", "done"]);
    expect(view.turns[1]).toMatchObject({ cause: "message", state: "done" });
    expect(view.turns[1]?.usageBefore.input_tokens).toBe(0);
    expect(view.turns[1]?.usageAfter).toEqual({ requests: 5, input_tokens: 2628, output_tokens: 206 });
    expect(viewUpTo("report", 28).turns[1]).toMatchObject({ state: "waiting", endedAt: null });
    expect(view.sandboxes["sb-06ba9c3b5ece8b56"]?.terminals).toEqual(["main"]);
  });
});

describe("a recorded session that was stopped", () => {
  it("shows the cut answer and the turn's error", () => {
    const view = viewOf(recorded("stopped"));
    const cut = view.items.find((each) => each.type === "answer");
    expect(cut).toMatchObject({ cut: "cancelled", text: "This takes a while. One, two, three, ", isComplete: true });
    expect(view.items.find((each) => each.type === "error")).toMatchObject({
      turn: 3,
      code: "MODEL_ERROR",
      fatal: true,
    });
    expect(Object.values(view.turns).map((each) => each.state)).toEqual([
      "cancelled",
      "cancelled",
      "failed",
      "waiting",
    ]);
    expect(view.turns[4]?.cause).toBe("continue");
  });

  it("marks messages as waiting until read or the turn ends", () => {
    expect(viewUpTo("stopped", 13).items.at(-1)).toMatchObject({ type: "message", isWaiting: true });
    expect(viewUpTo("stopped", 17).items.filter((each) => each.type === "message" && each.isWaiting)).toEqual([]);
  });

  it("withdraws approvals of a cancelled turn", () => {
    const view = viewUpTo("stopped", 49);
    expect(Object.values(view.approvals).map((each) => each.state)).toEqual(["withdrawn"]);
    expect(Object.values(view.calls).every((each) => each.progress === "done")).toBe(true);
  });
});

describe("a recorded session with a screen", () => {
  it("tracks control and screen changes", () => {
    const at = (number: number) => Object.values(viewUpTo("screen", number).sandboxes)[0];
    expect(at(17)).toMatchObject({ desktop: "none", holder: null });
    expect(at(18)).toMatchObject({ desktop: "started" });
    expect(at(50)).toMatchObject({ holder: "Ada" });
    expect(at(56)).toMatchObject({ holder: null });
    expect(at(101)?.screen).toBe(4);
    expect(viewUpTo("screen", 54)).toMatchObject({ state: "parked" });
    expect(viewUpTo("screen", 39).attention).toMatchObject({ view: "desktop", number: 39 });
  });
});
