import { describe, expect, it } from "vitest";
import type { SessionMessage } from "@/api/session-events";
import type { OutgoingMessage } from "@/session/store";
import type { AnswerItem, ChatItem, MessageItem, SessionView, TurnView } from "@/session/types";
import { agentStatus, buildThreadRows, canAgentContinue, countItemsAfter } from "./thread-rows";

const USAGE = { requests: 0, input_tokens: 0, output_tokens: 0 };
const at = "2026-01-01T00:00:00Z";

function userMessage(id: string, turn: number, isWaiting = false): MessageItem {
  const message: SessionMessage = {
    id,
    session: "s",
    number: 1,
    turn,
    role: "user",
    content: [],
    thought: "",
    calls: [],
    at,
  };
  return { type: "message", id, turn, at, message, isWaiting };
}

function answer(id: string, turn: number, more: Partial<AnswerItem> = {}): AnswerItem {
  const item = {
    type: "answer",
    id,
    turn,
    step: 1,
    at,
    by: null,
    text: "words",
    thought: "",
    thinking: false,
  } as const;
  return { ...item, calls: [], isComplete: true, cut: null, ...more };
}

function turn(number: number, state: TurnView["state"]): TurnView {
  const times = { startedAt: at, endedAt: state === "running" ? null : at };
  return { number, cause: "message", state, reason: null, ...times, usageBefore: USAGE, usageAfter: USAGE };
}

const ids = (items: ChatItem[], turns: TurnView[], more: { outbox?: OutgoingMessage[]; readUntil?: string } = {}) =>
  buildThreadRows({
    items,
    turns: Object.fromEntries(turns.map((each) => [each.number, each])),
    outbox: more.outbox ?? [],
    readUntil: more.readUntil ?? null,
  }).map((row) => row.id);

describe("chat rows", () => {
  it("have a footer below finished turns only", () => {
    const items = [userMessage("1", 1), answer("2", 1), userMessage("3", 2), answer("4", 2)];
    expect(ids(items, [turn(1, "done"), turn(2, "running")])).toEqual(["1", "2", "turn-1", "3", "4"]);
    expect(ids(items, [turn(1, "failed"), turn(2, "waiting")])).toEqual(["1", "2", "turn-1", "3", "4"]);
    expect(ids(items, [turn(1, "done"), turn(2, "cancelled")]).at(-1)).toBe("turn-2");
  });

  it("omit empty answers", () => {
    expect(ids([userMessage("1", 1), answer("2", 1, { text: "", isComplete: false })], [turn(1, "running")])).toEqual([
      "1",
    ]);
    expect(ids([answer("2", 1, { text: "", calls: ["c"] })], [turn(1, "running")])).toEqual(["2"]);
  });

  it("mark the last read item if newer ones follow", () => {
    const items = [userMessage("1", 1), answer("2", 1), answer("3", 1)];
    expect(ids(items, [turn(1, "running")], { readUntil: "2" })).toEqual(["1", "2", "unread", "3"]);
    expect(ids(items, [turn(1, "running")], { readUntil: "3" })).toEqual(["1", "2", "3"]);
    expect(countItemsAfter(items, "1")).toBe(2);
    expect(countItemsAfter(items, "unknown")).toBe(0);
    expect(countItemsAfter(items, null)).toBe(0);
  });

  it("end with outgoing messages", () => {
    const outgoing: OutgoingMessage = { key: "x", at, text: "hello", files: [], state: "sending", error: null };
    expect(ids([userMessage("1", 1)], [turn(1, "done")], { outbox: [outgoing] })).toEqual(["1", "turn-1", "out-x"]);
  });
});

describe("the agent's status", () => {
  const base = {
    turn: 1,
    sandboxes: {},
    calls: {},
    turns: { 1: turn(1, "running") },
    state: "running",
    items: [] as ChatItem[],
  };
  const view = (more: object) => ({ ...base, ...more }) as unknown as SessionView;

  it("is shown if no row shows it", () => {
    expect(agentStatus(view({}))).toBe("thinking");
    expect(agentStatus(view({ state: "idle" }))).toBe("nothing");
    expect(agentStatus(view({ state: "parked" }))).toBe("parked");
    expect(agentStatus(view({ items: [answer("1", 1, { isComplete: false })] }))).toBe("writing");
    expect(
      agentStatus(view({ items: [answer("1", 1, { calls: ["c"] })], calls: { c: { progress: "running" } } })),
    ).toBe("working");
    expect(agentStatus(view({ sandboxes: { b: { state: "starting" } } }))).toBe("starting");
  });

  it("allows continuing only after a failure or a stop", () => {
    expect(canAgentContinue(view({ state: "idle", turns: { 1: turn(1, "failed") } }))).toBe(true);
    expect(
      canAgentContinue(view({ state: "idle", turn: 2, turns: { 1: turn(1, "failed"), 2: turn(2, "done") } })),
    ).toBe(false);
    expect(canAgentContinue(view({ state: "running", turns: { 1: turn(1, "cancelled") } }))).toBe(false);
    expect(canAgentContinue(view({ state: "idle", turn: 0, turns: {} }))).toBe(false);
  });
});
