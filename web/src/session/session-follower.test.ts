import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { SessionEvent } from "@/api/session-events";
import { longEventLog } from "./fixtures/event-logs";
import { FakeServer, FakeSocket } from "./fixtures/fake-server";
import recorded from "./fixtures/report.json";
import { LONGEST_PAUSE, PAGE_SIZE, PONG_TIMEOUT, SILENCE_MS } from "./session-follower";
import {
  KEEP_FOLLOWING_MS,
  reconnectSession,
  retry,
  type SessionLink,
  send,
  useOutbox,
  useSession,
  watchSession,
} from "./store";

const log = recorded as unknown as SessionEvent[];
let server: FakeServer;
let links: SessionLink["link"][];
let now: SessionLink;
let counted = 0;
let id: string;

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(Math, "random").mockReturnValue(0.5);
  server = new FakeServer(log.slice(0, 50));
  links = [];
  // Sessions stay cached for a while, so each test uses its own.
  counted += 1;
  id = `ses-${counted}`;
});

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const pass = (milliseconds = 300) => act(() => vi.advanceTimersByTimeAsync(milliseconds));

function begin(): () => void {
  return watchSession(id, (link) => {
    now = link;
    if (links.at(-1) !== link.link) links.push(link.link);
  });
}

async function live(): Promise<() => void> {
  const leave = begin();
  await pass();
  FakeSocket.last.open();
  await pass();
  return leave;
}

describe("following", () => {
  it("reads all pages, then continues over a socket", async () => {
    server.log = longEventLog(2 * PAGE_SIZE + 10);
    await live();
    expect(server.count("GET", "/events")).toBe(3);
    expect(FakeSocket.last.url).toContain(`/v1/sessions/${id}/ws?after=${2 * PAGE_SIZE + 10}&ticket=t`);
    expect(now).toMatchObject({ link: "live", caughtUp: true, error: null });
    expect(now.view).toMatchObject({ last: 2 * PAGE_SIZE + 10, instructions: "Be kind.", budget: 7 });
  });

  it("batches events of one frame", async () => {
    await live();
    let updates = 0;
    const leave = watchSession(id, () => {
      updates += 1;
    });
    for (const event of log.slice(50)) FakeSocket.last.tell(event);
    expect(updates).toBe(0);
    await pass();
    expect(updates).toBe(1);
    expect(now.view.last).toBe(log.length);
    leave();
  });

  it("reconnects and requests missed events", async () => {
    await live();
    server.log = log;
    FakeSocket.last.close();
    await pass(0);
    expect(now.link).toBe("lost");
    await pass(600);
    expect(FakeSocket.opened).toHaveLength(2);
    expect(FakeSocket.last.url).toContain(`after=${log.length}`);
    expect(now.link).toBe("lost");
    FakeSocket.last.open();
    await pass();
    expect(links).toEqual(["connecting", "live", "lost", "live"]);
  });

  it("backs off up to a limit, and retries at once when the page becomes visible", async () => {
    await live();
    server.reachable = false;
    server.asked = [];
    FakeSocket.last.close();
    const pauses: number[] = [];
    for (let before = Date.now(); pauses.length < 6; ) {
      const known = server.asked.length;
      while (server.asked.length === known) await pass(50);
      pauses.push(Math.round((Date.now() - before) / 500) * 500);
      before = Date.now();
    }
    expect(pauses).toEqual([500, 1000, 2000, 4000, LONGEST_PAUSE, LONGEST_PAUSE]);
    server.reachable = true;
    window.dispatchEvent(new Event("online"));
    await pass(100);
    expect(FakeSocket.opened).toHaveLength(2);
  });

  it("pings a silent socket and closes it without a reply", async () => {
    await live();
    const first = FakeSocket.last;
    await pass(SILENCE_MS);
    expect(first.sent).toEqual(['{"type":"ping"}']);
    first.mute = true;
    await pass(SILENCE_MS);
    expect(first.sent).toHaveLength(2);
    expect(now.link).toBe("live");
    await pass(PONG_TIMEOUT);
    expect(now.link).toBe("lost");
    expect(first.readyState).toBe(3);
  });

  it("falls back to server-sent events after two failed sockets", async () => {
    const told = new TextEncoder().encode(`id: 51\nevent: x\ndata: ${JSON.stringify(log[50])}\n\n`);
    server.answers[`GET /v1/sessions/${id}/events`] = ({ headers, query }) => {
      if (headers.Accept !== "text/event-stream")
        return [200, { items: server.log.filter((each) => each.number > Number(query.get("after"))) }];
      return [200, new ReadableStream({ start: (controller) => controller.enqueue(told) })];
    };
    begin();
    await pass();
    FakeSocket.last.close();
    await pass(1000);
    expect(FakeSocket.opened).toHaveLength(2);
    FakeSocket.last.close();
    await pass(2000);
    expect(FakeSocket.opened).toHaveLength(2);
    expect(now.link).toBe("live");
    expect(now.view.last).toBe(51);
  });

  it.each([403, 404])("stops on a refusal (%i) until retried", async (status) => {
    server.answers[`GET /v1/sessions/${id}/events`] = () => [status, { code: "NO", message: "No." }];
    begin();
    await pass(10 * LONGEST_PAUSE);
    expect(now).toMatchObject({ link: "ended", error: { status, message: "No." } });
    expect(now.view.deleted).toBe(false);
    expect(server.count("GET", "/events")).toBe(1);
    server.answers = {};
    reconnectSession(id);
    await pass();
    expect(now).toMatchObject({ error: null, view: { last: 50 } });
  });

  it("detects a session deleted while disconnected", async () => {
    await live();
    server.answers[`GET /v1/sessions/${id}/events`] = () => [404, { code: "SESSION_NOT_FOUND", message: "Gone." }];
    FakeSocket.last.close();
    await pass(2000);
    expect(now).toMatchObject({ link: "ended", view: { deleted: true, last: 50 } });
  });

  it("sends no requests after the session was deleted", async () => {
    await live();
    FakeSocket.last.tell({ ...log[0], number: 99, type: "session.deleted", data: {} });
    await pass();
    const asked = server.asked.length;
    await pass(10 * LONGEST_PAUSE);
    expect(now).toMatchObject({ link: "ended", view: { deleted: true } });
    expect(server.asked).toHaveLength(asked);
  });

  it("prepends a fork's history to its events", async () => {
    const said = (number: number, role: string, more: object) => ({
      id: `m${number}`,
      number,
      turn: 1,
      role,
      at: "",
      content: [{ type: "text", text: role }],
      thought: "",
      calls: [],
      ...more,
    });
    const calls = [{ id: "c", name: "code_x", arguments: {} }];
    const items = [said(1, "user", {}), said(2, "assistant", { calls }), said(3, "tool", { call_id: "c" })];
    server.log = log.slice(0, 1);
    server.answers[`GET /v1/sessions/${id}`] = () => [200, { origin: { session: "ses-0" }, instructions: "" }];
    server.answers[`GET /v1/sessions/${id}/messages`] = ({ query }) => {
      const rest = items.filter(({ number }) => number > Number(query.get("after")));
      return [200, { items: rest, next: rest.at(-1)?.number ?? 3 }];
    };
    await live();
    expect(now.view.items.map((each) => each.id)).toEqual(["m1", "m2"]);
    expect(now.view.calls.c).toMatchObject({ progress: "done", answer: "m2", result: { content: [{ text: "tool" }] } });
  });
});

describe("useSession", () => {
  it("shares one connection, and keeps it for a while when unused", async () => {
    const one = renderHook(() => useSession(id, ({ view }) => view.items.filter((each) => each.type === "said")));
    const other = renderHook(() => useSession(id, ({ view }) => view.last));
    await pass();
    expect(FakeSocket.opened).toHaveLength(1);
    expect(one.result.current).toHaveLength(1);
    expect(other.result.current).toBe(50);
    FakeSocket.last.open();
    one.unmount();
    other.unmount();
    await pass(KEEP_FOLLOWING_MS - 1000);
    const back = renderHook(() => useSession(id, ({ view }) => view.last));
    expect(back.result.current).toBe(50);
    await pass(KEEP_FOLLOWING_MS);
    expect(FakeSocket.opened).toHaveLength(1);
    back.unmount();
    await pass(KEEP_FOLLOWING_MS + 1000);
    expect(FakeSocket.last.readyState).toBe(3);
    const again = renderHook(() => useSession(id, ({ view }) => view.last));
    expect(again.result.current).toBe(0);
    await pass();
    expect(FakeSocket.opened).toHaveLength(2);
  });
});

describe("sending", () => {
  const [, first] = log;
  const sent = { ...(first?.type === "message.received" ? first.data.message : null), id: "msg-new" };
  const event = { ...first, number: 51, data: { message: sent, waits: true } };

  it("retries under the same key while disconnected, until the event arrives", async () => {
    await live();
    const outbox = renderHook(() => useOutbox(id));
    server.answers[`POST /v1/sessions/${id}/messages`] = () => [202, sent];
    server.reachable = false;
    void act(() => void send(id, { text: "Hello" }));
    await pass(2000);
    expect(outbox.result.current).toMatchObject([{ text: "Hello", state: "sending" }]);
    server.reachable = true;
    await pass(10_000);
    const tries = server.asked.filter(({ path, method }) => method === "POST" && path.endsWith("/messages"));
    expect(tries.length).toBeGreaterThan(2);
    expect(new Set(tries.map(({ headers }) => headers["Idempotency-Key"])).size).toBe(1);
    expect(outbox.result.current).toHaveLength(1);
    FakeSocket.last.tell(event);
    await pass();
    expect(outbox.result.current).toEqual([]);
    expect(now.view.items.at(-1)?.id).toBe("msg-new");
  });

  it("completes if the event arrives before the response", async () => {
    await live();
    const outbox = renderHook(() => useOutbox(id));
    let answer = () => {};
    const waits = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const plain = globalThis.fetch;
    server.answers[`POST /v1/sessions/${id}/messages`] = () => [202, sent];
    vi.stubGlobal("fetch", async (address: string, init: RequestInit) => {
      if (address.endsWith("/messages")) await waits;
      return plain(address, init);
    });
    void act(() => void send(id, { text: "Hello" }));
    FakeSocket.last.tell(event);
    await pass();
    expect(outbox.result.current).toHaveLength(1);
    answer();
    await pass();
    expect(outbox.result.current).toEqual([]);
  });

  it("keeps a refused message to send again under the same key", async () => {
    await live();
    const outbox = renderHook(() => useOutbox(id));
    server.answers[`POST /v1/sessions/${id}/messages`] = () => [413, { code: "TOO_LARGE", message: "Too large." }];
    const file = new File([new Uint8Array([104, 105])], "a.txt", { type: "text/plain" });
    void act(() => void send(id, { text: "Look", files: [file] }));
    await pass();
    expect(outbox.result.current).toMatchObject([{ state: "failed", error: { message: "Too large." } }]);
    server.answers[`POST /v1/sessions/${id}/messages`] = () => [202, sent];
    void act(() => void retry(id, outbox.result.current[0]?.key ?? ""));
    await pass();
    const tries = server.asked.filter(({ path, method }) => method === "POST" && path.endsWith("/messages"));
    expect(tries.map(({ headers }) => headers["Idempotency-Key"])).toEqual(
      Array(2).fill(outbox.result.current[0]?.key),
    );
    const part = { type: "file", name: "a.txt", mime: "text/plain", data: "aGk=" };
    expect(tries[1]?.body).toEqual({ content: [{ type: "text", text: "Look" }, part] });
  });
});
