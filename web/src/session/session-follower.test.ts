import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { SessionEvent } from "@/api/session-events";
import { buildLongEventLog } from "./fixtures/event-logs";
import { FakeServer, FakeSocket } from "./fixtures/fake-server";
import recorded from "./fixtures/report.json";
import { EVENT_PAGE_SIZE, MAX_RETRY_DELAY_MS, PONG_TIMEOUT, SILENCE_TIMEOUT_MS } from "./session-follower";
import {
  type FollowedSessionState,
  KEEP_FOLLOWING_MS,
  reconnectSession,
  retryMessage,
  sendMessage,
  useOutbox,
  useSession,
  watchSession,
} from "./store";

const log = recorded as unknown as SessionEvent[];
let server: FakeServer;
let links: FollowedSessionState["link"][];
let latest: FollowedSessionState;
let sessionCounter = 0;
let id: string;

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(Math, "random").mockReturnValue(0.5);
  server = new FakeServer(log.slice(0, 50));
  links = [];
  // Sessions stay cached for a while, so each test uses its own.
  sessionCounter += 1;
  id = `ses-${sessionCounter}`;
});

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const advance = (milliseconds = 300) => act(() => vi.advanceTimersByTimeAsync(milliseconds));

function watch(): () => void {
  return watchSession(id, (link) => {
    latest = link;
    if (links.at(-1) !== link.link) links.push(link.link);
  });
}

async function live(): Promise<() => void> {
  const stop = watch();
  await advance();
  FakeSocket.last.open();
  await advance();
  return stop;
}

describe("following", () => {
  it("reads all pages, then continues over a socket", async () => {
    server.log = buildLongEventLog(2 * EVENT_PAGE_SIZE + 10);
    await live();
    expect(server.count("GET", "/events")).toBe(3);
    expect(FakeSocket.last.url).toContain(`/v1/sessions/${id}/ws?after=${2 * EVENT_PAGE_SIZE + 10}&ticket=t`);
    expect(latest).toMatchObject({ link: "live", caughtUp: true, error: null });
    expect(latest.view).toMatchObject({ last: 2 * EVENT_PAGE_SIZE + 10, instructions: "Be kind.", budget: 7 });
  });

  it("batches events of one frame", async () => {
    await live();
    let updates = 0;
    const stop = watchSession(id, () => {
      updates += 1;
    });
    for (const event of log.slice(50)) FakeSocket.last.deliver(event);
    expect(updates).toBe(0);
    await advance();
    expect(updates).toBe(1);
    expect(latest.view.last).toBe(log.length);
    stop();
  });

  it("reconnects and requests missed events", async () => {
    await live();
    server.log = log;
    FakeSocket.last.close();
    await advance(0);
    expect(latest.link).toBe("lost");
    await advance(600);
    expect(FakeSocket.opened).toHaveLength(2);
    expect(FakeSocket.last.url).toContain(`after=${log.length}`);
    expect(latest.link).toBe("lost");
    FakeSocket.last.open();
    await advance();
    expect(links).toEqual(["connecting", "live", "lost", "live"]);
  });

  it("backs off up to a limit, and retries at once when the page becomes visible", async () => {
    await live();
    server.reachable = false;
    server.requests = [];
    FakeSocket.last.close();
    const pauses: number[] = [];
    for (let before = Date.now(); pauses.length < 6; ) {
      const previousCount = server.requests.length;
      while (server.requests.length === previousCount) await advance(50);
      pauses.push(Math.round((Date.now() - before) / 500) * 500);
      before = Date.now();
    }
    expect(pauses).toEqual([500, 1000, 2000, 4000, MAX_RETRY_DELAY_MS, MAX_RETRY_DELAY_MS]);
    server.reachable = true;
    window.dispatchEvent(new Event("online"));
    await advance(100);
    expect(FakeSocket.opened).toHaveLength(2);
  });

  it("pings a silent socket and closes it without a reply", async () => {
    await live();
    const first = FakeSocket.last;
    await advance(SILENCE_TIMEOUT_MS);
    expect(first.sent).toEqual(['{"type":"ping"}']);
    first.mute = true;
    await advance(SILENCE_TIMEOUT_MS);
    expect(first.sent).toHaveLength(2);
    expect(latest.link).toBe("live");
    await advance(PONG_TIMEOUT);
    expect(latest.link).toBe("lost");
    expect(first.readyState).toBe(3);
  });

  it("falls back to server-sent events after two failed sockets", async () => {
    const frameBytes = new TextEncoder().encode(`id: 51\nevent: x\ndata: ${JSON.stringify(log[50])}\n\n`);
    server.responses[`GET /v1/sessions/${id}/events`] = ({ headers, query }) => {
      if (headers.Accept !== "text/event-stream")
        return [200, { items: server.log.filter((each) => each.number > Number(query.get("after"))) }];
      return [200, new ReadableStream({ start: (controller) => controller.enqueue(frameBytes) })];
    };
    watch();
    await advance();
    FakeSocket.last.close();
    await advance(1000);
    expect(FakeSocket.opened).toHaveLength(2);
    FakeSocket.last.close();
    await advance(2000);
    expect(FakeSocket.opened).toHaveLength(2);
    expect(latest.link).toBe("live");
    expect(latest.view.last).toBe(51);
  });

  it.each([403, 404])("stops on a refusal (%i) until retried", async (status) => {
    server.responses[`GET /v1/sessions/${id}/events`] = () => [status, { code: "NO", message: "No." }];
    watch();
    await advance(10 * MAX_RETRY_DELAY_MS);
    expect(latest).toMatchObject({ link: "ended", error: { status, message: "No." } });
    expect(latest.view.deleted).toBe(false);
    expect(server.count("GET", "/events")).toBe(1);
    server.responses = {};
    reconnectSession(id);
    await advance();
    expect(latest).toMatchObject({ error: null, view: { last: 50 } });
  });

  it("detects a session deleted while disconnected", async () => {
    await live();
    server.responses[`GET /v1/sessions/${id}/events`] = () => [404, { code: "SESSION_NOT_FOUND", message: "Gone." }];
    FakeSocket.last.close();
    await advance(2000);
    expect(latest).toMatchObject({ link: "ended", view: { deleted: true, last: 50 } });
  });

  it("sends no requests after the session was deleted", async () => {
    await live();
    FakeSocket.last.deliver({ ...log[0], number: 99, type: "session.deleted", data: {} });
    await advance();
    const requestCount = server.requests.length;
    await advance(10 * MAX_RETRY_DELAY_MS);
    expect(latest).toMatchObject({ link: "ended", view: { deleted: true } });
    expect(server.requests).toHaveLength(requestCount);
  });

  it("prepends a fork's history to its events", async () => {
    const message = (number: number, role: string, more: object) => ({
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
    const items = [message(1, "user", {}), message(2, "assistant", { calls }), message(3, "tool", { call_id: "c" })];
    server.log = log.slice(0, 1);
    server.responses[`GET /v1/sessions/${id}`] = () => [200, { origin: { session: "ses-0" }, instructions: "" }];
    server.responses[`GET /v1/sessions/${id}/messages`] = ({ query }) => {
      const rest = items.filter(({ number }) => number > Number(query.get("after")));
      return [200, { items: rest, next: rest.at(-1)?.number ?? 3 }];
    };
    await live();
    expect(latest.view.items.map((each) => each.id)).toEqual(["m1", "m2"]);
    expect(latest.view.calls.c).toMatchObject({
      progress: "done",
      answer: "m2",
      result: { content: [{ text: "tool" }] },
    });
  });
});

describe("useSession", () => {
  it("shares one connection, and keeps it for a while when unused", async () => {
    const one = renderHook(() => useSession(id, ({ view }) => view.items.filter((each) => each.type === "message")));
    const other = renderHook(() => useSession(id, ({ view }) => view.last));
    await advance();
    expect(FakeSocket.opened).toHaveLength(1);
    expect(one.result.current).toHaveLength(1);
    expect(other.result.current).toBe(50);
    FakeSocket.last.open();
    one.unmount();
    other.unmount();
    await advance(KEEP_FOLLOWING_MS - 1000);
    const remounted = renderHook(() => useSession(id, ({ view }) => view.last));
    expect(remounted.result.current).toBe(50);
    await advance(KEEP_FOLLOWING_MS);
    expect(FakeSocket.opened).toHaveLength(1);
    remounted.unmount();
    await advance(KEEP_FOLLOWING_MS + 1000);
    expect(FakeSocket.last.readyState).toBe(3);
    const remountedLater = renderHook(() => useSession(id, ({ view }) => view.last));
    expect(remountedLater.result.current).toBe(0);
    await advance();
    expect(FakeSocket.opened).toHaveLength(2);
  });
});

describe("sending", () => {
  const [, first] = log;
  const sentMessage = { ...(first?.type === "message.received" ? first.data.message : null), id: "msg-new" };
  const event = { ...first, number: 51, data: { message: sentMessage, waits: true } };

  it("retries under the same key while disconnected, until the event arrives", async () => {
    await live();
    const outbox = renderHook(() => useOutbox(id));
    server.responses[`POST /v1/sessions/${id}/messages`] = () => [202, sentMessage];
    server.reachable = false;
    void act(() => void sendMessage(id, { text: "Hello" }));
    await advance(2000);
    expect(outbox.result.current).toMatchObject([{ text: "Hello", state: "sending" }]);
    server.reachable = true;
    await advance(10_000);
    const attempts = server.requests.filter(({ path, method }) => method === "POST" && path.endsWith("/messages"));
    expect(attempts.length).toBeGreaterThan(2);
    expect(new Set(attempts.map(({ headers }) => headers["Idempotency-Key"])).size).toBe(1);
    expect(outbox.result.current).toHaveLength(1);
    FakeSocket.last.deliver(event);
    await advance();
    expect(outbox.result.current).toEqual([]);
    expect(latest.view.items.at(-1)?.id).toBe("msg-new");
  });

  it("completes if the event arrives before the response", async () => {
    await live();
    const outbox = renderHook(() => useOutbox(id));
    let answer = () => {};
    const responseGate = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const originalFetch = globalThis.fetch;
    server.responses[`POST /v1/sessions/${id}/messages`] = () => [202, sentMessage];
    vi.stubGlobal("fetch", async (address: string, init: RequestInit) => {
      if (address.endsWith("/messages")) await responseGate;
      return originalFetch(address, init);
    });
    void act(() => void sendMessage(id, { text: "Hello" }));
    FakeSocket.last.deliver(event);
    await advance();
    expect(outbox.result.current).toHaveLength(1);
    answer();
    await advance();
    expect(outbox.result.current).toEqual([]);
  });

  it("keeps a refused message to send again under the same key", async () => {
    await live();
    const outbox = renderHook(() => useOutbox(id));
    server.responses[`POST /v1/sessions/${id}/messages`] = () => [413, { code: "TOO_LARGE", message: "Too large." }];
    const file = new File([new Uint8Array([104, 105])], "a.txt", { type: "text/plain" });
    void act(() => void sendMessage(id, { text: "Look", files: [file] }));
    await advance();
    expect(outbox.result.current).toMatchObject([{ state: "failed", error: { message: "Too large." } }]);
    server.responses[`POST /v1/sessions/${id}/messages`] = () => [202, sentMessage];
    void act(() => void retryMessage(id, outbox.result.current[0]?.key ?? ""));
    await advance();
    const attempts = server.requests.filter(({ path, method }) => method === "POST" && path.endsWith("/messages"));
    expect(attempts.map(({ headers }) => headers["Idempotency-Key"])).toEqual(
      Array(2).fill(outbox.result.current[0]?.key),
    );
    const part = { type: "file", name: "a.txt", mime: "text/plain", data: "aGk=" };
    expect(attempts[1]?.body).toEqual({ content: [{ type: "text", text: "Look" }, part] });
  });
});
