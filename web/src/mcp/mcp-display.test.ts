import { describe, expect, it } from "vitest";
import { HELD_TOOLS_QUERY, summarizeHeldTools } from "@/shell/status/held-tools";
import { MCP_SERVERS_QUERY, parseMcpTool } from "./api";
import { heldToolText } from "./held-tool-text";
import { resultParts } from "./result-parts";

describe("a tool's definition as text", () => {
  it("has name and description first and sorted keys", () => {
    const text = heldToolText({ inputSchema: { b: 1, a: [{ d: 1, c: 2 }] }, description: "one\ntwo", name: "add" });
    expect(text.split("\n").slice(0, 4)).toEqual(["name: add", "description:", "one", "two"]);
    expect(text.indexOf('"a"')).toBeLessThan(text.indexOf('"b"'));
    expect(text.indexOf('"c"')).toBeLessThan(text.indexOf('"d"'));
  });
  it("shows characters that cannot be seen", () => {
    const text = heldToolText({ name: "add", description: "a\u200bb\u202ec", inputSchema: { "x\u200b": "\u{e0041}" } });
    expect(text).toContain("a\\u{200B}b\\u{202E}c");
    expect(text).toContain("\\u{E0041}");
    expect(text).not.toMatch(/[\u200b\u202e\u{e0041}]/u);
  });
});

describe("parts of a result", () => {
  const parts = (...content: unknown[]) => resultParts({ content });
  it("are texts, images, sounds and resources", () => {
    expect(parts({ type: "text", text: "a" })).toEqual([{ type: "text", text: "a" }]);
    expect(parts({ type: "image", mimeType: "image/png", data: "AAAA" })).toEqual([
      { type: "image", source: "data:image/png;base64,AAAA" },
    ]);
    expect(parts({ type: "audio", mimeType: "audio/wav", data: "AAAA" })[0]?.type).toBe("audio");
    expect(parts({ type: "resource", resource: { uri: "file:///a", text: "b" } })).toEqual([
      { type: "text", text: "b", label: "file:///a" },
    ]);
  });
  it("are JSON if a browser could run or load something", () => {
    for (const hostile of [
      { type: "image", mimeType: "image/svg+xml", data: "AAAA" },
      { type: "image", mimeType: "text/html", data: "AAAA" },
      { type: "image", mimeType: "image/png", data: 'AA"><script>' },
      { type: "resource_link", uri: "https://evil.example" },
      { type: "image", mimeType: {}, data: [] },
      null,
      7,
    ])
      expect(parts(hostile)[0]?.type).toBe("json");
    expect(resultParts({ content: "no" })).toEqual([]);
  });
});

describe("tools of a server", () => {
  it("are read without trust in their types", () => {
    const tool = parseMcpTool({ name: 7, description: {}, inputSchema: [], annotations: "x" });
    expect(tool).toMatchObject({ name: "", description: "", inputSchema: {}, annotations: {} });
  });
});

describe("held tools", () => {
  it("are those of the servers that the page shows", () => expect(HELD_TOOLS_QUERY).toEqual(MCP_SERVERS_QUERY));
  it("lead to the only server that has some, or to the list", () => {
    expect(summarizeHeldTools([{ name: "a", held: 0 }])).toEqual({ count: 0, path: "/tools" });
    expect(
      summarizeHeldTools([
        { name: "a b", held: 2 },
        { name: "c", held: 0 },
      ]),
    ).toEqual({ count: 2, path: "/tools/a%20b?tab=changes" });
    const both = [
      { name: "a", held: 2 },
      { name: "c", held: 1 },
    ];
    expect(summarizeHeldTools(both)).toEqual({ count: 3, path: "/tools" });
  });
});
