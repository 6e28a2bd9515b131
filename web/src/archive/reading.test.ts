import { describe, expect, it } from "vitest";
import { asked, type ChatMessage, filtersOf } from "./asking";
import { arrival, lastQuestion, noteOf, pictureOf, pretty, reading } from "./reading";

const text = (words: string) => ({ type: "text" as const, text: words });
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

  it("have results beside their calls, and steps of one answer together", () => {
    const { turns, results } = reading(messages);
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

  it("give what the person said last, which is no result", () => {
    expect(lastQuestion(messages)).toBe("Go on.");
    expect(lastQuestion(messages.slice(0, 5))).toBe("Do it.");
    expect(lastQuestion([])).toBe("");
  });

  it("tell an agent's own notes from what a person said", () => {
    const note = "<system-reminder>\nIt is late.\n</system-reminder>\n";
    expect([note, "<b>bold</b> words", "a < b"].map(noteOf)).toEqual(["system-reminder", null, null]);
    expect(
      lastQuestion([
        { role: "user", parts: [text(note), text("Go.")] },
        { role: "user", parts: [text(note)] },
      ]),
    ).toBe("Go.");
  });

  it("show only pictures that are here and nothing but pictures", () => {
    const media = { type: "media" as const, kind: "image" as const };
    expect(pictureOf({ ...media, mediaType: "image/png", data: "AA==" })).toBe("data:image/png;base64,AA==");
    expect(pictureOf({ ...media, mediaType: "image/svg+xml", data: "AA==" })).toBeNull();
    expect(pictureOf({ ...media, url: "https://example.org/x.png" })).toBeNull();
  });
});

describe("an answer's bytes", () => {
  it("come as a curve that ends with all of them, with few points", () => {
    const pieces = Array.from({ length: 1000 }, (_, index): [number, number] => [index / 10, 5]);
    const points = arrival(pieces, 100);
    expect(points.length).toBeLessThanOrEqual(101);
    expect(points.at(-1)).toEqual({ at: 99.9, share: 1 });
    expect(arrival([], 10)).toEqual([]);
  });

  it("are made readable if they are JSON", () => {
    expect(pretty('{"a":1}')).toBe('{\n  "a": 1\n}');
    expect(pretty("data: {}")).toBe("data: {}");
  });
});

describe("filters", () => {
  it("are read from the address, and nothing else is", () => {
    expect(filtersOf(new URLSearchParams("model=fast&text=%20&evil=1&run=run-1"))).toEqual({
      model: "fast",
      run: "run-1",
    });
  });

  it("tell the server times with their zone", () => {
    expect(asked({ since: "2026-01-02T03:04" }).since).toBe(new Date("2026-01-02T03:04").toISOString());
    expect(asked({ since: "never" }).since).toBe("never");
  });
});
