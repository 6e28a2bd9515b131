import { createServer, type IncomingMessage, type Server } from "node:http";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { RunStarter } from "./run-starter";

let server: Server;
let requests: { url: string; key: string | undefined; body: string }[];
let refuse: number;
const originalFetch = globalThis.fetch;

/** Fake server that refuses the first requests, as a busy one does. */
beforeEach(async () => {
  requests = [];
  refuse = 0;
  server = createServer(async (request: IncomingMessage, response) => {
    // The test page has another origin than the server.
    response.setHeader("Access-Control-Allow-Origin", "*");
    response.setHeader("Access-Control-Allow-Headers", "*, content-type, idempotency-key, x-paddock-console");
    if (request.method === "OPTIONS") return void response.end();
    let body = "";
    for await (const piece of request) body += piece;
    requests.push({ url: request.url ?? "", key: request.headers["idempotency-key"]?.toString(), body });
    const runs = request.url === "/v1/runs";
    response.statusCode = runs && refuse-- > 0 ? 503 : 200;
    response.end(JSON.stringify(runs ? { runs: [{ id: "run-1" }] } : { id: "bundle-1", size: 1 }));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as { port: number };
  vi.stubGlobal("fetch", (path: string, options: RequestInit) =>
    originalFetch(`http://127.0.0.1:${port}${path}`, {
      method: options.method,
      headers: options.headers,
      body: options.body,
    }),
  );
});

afterEach(async () => {
  vi.unstubAllGlobals();
  await new Promise((done) => server.close(done));
});

const attachments = { "a.csv": { directory: false, files: [{ path: "a.csv", file: new File(["1,2"], "a.csv") }] } };

it("retries under the same key and bundle until answered", async () => {
  const starter = new RunStarter();
  const order = { task: { name: "x", inputs: ["a.csv"] }, attachments, file: null };
  refuse = 1;
  await expect(starter.start(order)).rejects.toThrow();
  expect(await starter.start(order)).toBe("/runs/run-1");
  expect(requests.map((each) => each.url)).toEqual(["/v1/inputs", "/v1/runs", "/v1/runs"]);
  expect(requests[1]?.key).toBe(requests[2]?.key);
  expect(JSON.parse(requests[2]?.body ?? "")).toEqual({ task: { name: "x" }, inputs: "bundle-1" });
});

it("uses a new key for another task, and after a start", async () => {
  const starter = new RunStarter();
  await starter.start({ task: { name: "x" }, attachments: {}, file: null });
  await starter.start({ task: { name: "x" }, attachments: {}, file: null });
  await starter.start({ task: { name: "y" }, attachments: {}, file: "y.yaml" });
  expect(new Set(requests.map((each) => each.key)).size).toBe(3);
  expect(JSON.parse(requests[2]?.body ?? "")).toEqual({ file: "y.yaml" });
});
