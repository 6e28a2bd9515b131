import { describe, expect, it } from "vitest";
import { type ChatMessage, exchangeFiltersFromUrl, exchangeFiltersToQuery } from "./api";
import {
  byteArrivalCurve,
  groupMessagesIntoTurns,
  imageDataUrl,
  lastUserText,
  prettyJson,
  systemReminderText,
} from "./message-turns";

const text = (content: string) => ({ type: "text" as const, text: content });
const call = (id: string) => ({ type: "toolCall" as const, id, name: "Bash", arguments: "{}" });
const result = (callId: string) => ({ type: "toolResult" as const, callId, content: [text("done")] });

describe("messages", () => {
  const messages: ChatMessage[] = [
    { role: "system", parts: [text("You are.")] },
    { role: "user", parts: [text("Do it.")] },
    { role: "assistant", parts: [text("Yes."), call("a")] },
    { role: "user", parts: [result("a")] },
    { role: "assistant", parts: [call("b")] },
    { role: "user", parts: [result("b"), text("Go on.")] },
    { role: "user", parts: [result("lost")] },
  ];

  it("have results beside calls, and steps grouped", () => {
    const { turns, results } = groupMessagesIntoTurns(messages);
    expect(turns.map(({ role, index, parts }) => [role, index, parts.length])).toEqual([
      ["system", 0, 1],
      ["user", 1, 1],
      ["assistant", 2, 3],
      ["user", 5, 1],
      ["user", 6, 1],
    ]);
    expect(results.get("a")?.content).toEqual([text("done")]);
    expect(turns.at(-1)?.parts).toEqual([{ type: "toolCall", id: "lost", name: "lost", arguments: "" }]);
  });

  it("find the last user text, not a tool result", () => {
    expect(lastUserText(messages)).toBe("Go on.");
    expect(lastUserText(messages.slice(0, 5))).toBe("Do it.");
    expect(lastUserText([])).toBe("");
  });

  it("distinguish system reminders from user text", () => {
    const note = "<system-reminder>\nIt is late.\n</system-reminder>\n";
    expect([note, "<b>bold</b> words", "a < b"].map(systemReminderText)).toEqual(["system-reminder", null, null]);
    expect(
      lastUserText([
        { role: "user", parts: [text(note), text("Go.")] },
        { role: "user", parts: [text(note)] },
      ]),
    ).toBe("Go.");
  });

  it("show only embedded plain images", () => {
    const media = { type: "media" as const, kind: "image" as const };
    expect(imageDataUrl({ ...media, mediaType: "image/png", data: "AA==" })).toBe("data:image/png;base64,AA==");
    expect(imageDataUrl({ ...media, mediaType: "image/svg+xml", data: "AA==" })).toBeNull();
    expect(imageDataUrl({ ...media, url: "https://example.org/x.png" })).toBeNull();
  });
});

describe("response bytes", () => {
  it("form a curve with few points that ends at 100 %", () => {
    const pieces = Array.from({ length: 1000 }, (_, index): [number, number] => [index / 10, 5]);
    const points = byteArrivalCurve(pieces, 100);
    expect(points.length).toBeLessThanOrEqual(101);
    expect(points.at(-1)).toEqual({ at: 99.9, share: 1 });
    expect(byteArrivalCurve([], 10)).toEqual([]);
  });

  it("are indented if JSON", () => {
    expect(prettyJson('{"a":1}')).toBe('{\n  "a": 1\n}');
    expect(prettyJson("data: {}")).toBe("data: {}");
  });
});

describe("filters", () => {
  it("are read from the URL", () => {
    expect(exchangeFiltersFromUrl(new URLSearchParams("model=fast&text=%20&evil=1&run=run-1"))).toEqual({
      model: "fast",
      run: "run-1",
    });
  });

  it("send times with time zone", () => {
    expect(exchangeFiltersToQuery({ since: "2026-01-02T03:04" }).since).toBe(
      new Date("2026-01-02T03:04").toISOString(),
    );
    expect(exchangeFiltersToQuery({ since: "never" }).since).toBe("never");
  });
});
