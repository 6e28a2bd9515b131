import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { fetchRaw, PROVIDER_KEY_REFUSED, setSignedOutListener } from "./client";

const ANSWERS: Record<string, [number, string]> = {
  "/own": [401, '{"code": "UNAUTHORIZED", "message": "Send an API key."}'],
  "/provider": [401, '{"error": {"code": "provider_key_refused", "message": "provider a refused the key"}}'],
  "/model": [404, '{"error": {"code": null, "message": "no such model"}}'],
  "/page": [502, "<html>"],
};
let server: Server;
let signedOut = 0;

beforeAll(async () => {
  server = createServer((request, response) => {
    // The test page has another origin than the server.
    response.setHeader("Access-Control-Allow-Origin", "*");
    response.setHeader("Access-Control-Allow-Headers", "x-paddock-console");
    if (request.method === "OPTIONS") return void response.end();
    const [status, body] = ANSWERS[request.url ?? ""] ?? [500, ""];
    response.writeHead(status).end(body);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const originalFetch = globalThis.fetch;
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  vi.stubGlobal("fetch", (path: string, { method, headers }: RequestInit) =>
    originalFetch(url + path, { method, headers }),
  );
  setSignedOutListener(() => {
    signedOut += 1;
  });
});
afterAll(() => {
  vi.unstubAllGlobals();
  server.close();
});

const refused = (path: string) => fetchRaw("GET", path).catch((error: unknown) => error);

describe("a refused request", () => {
  it("signs the user out if the server refuses the session", async () => {
    expect(await refused("/own")).toMatchObject({ status: 401, code: "UNAUTHORIZED", message: "Send an API key." });
    expect(signedOut).toBe(1);
  });

  it("does not sign the user out if a provider refuses its key", async () => {
    const before = signedOut;
    expect(await refused("/provider")).toMatchObject({
      code: PROVIDER_KEY_REFUSED,
      message: "provider a refused the key",
    });
    expect(signedOut).toBe(before);
  });

  it("shows the model's message, or the raw text", async () => {
    expect(await refused("/model")).toMatchObject({ code: "HTTP_404", message: "no such model" });
    expect(await refused("/page")).toMatchObject({ code: "HTTP_502", message: "<html>" });
  });
});
