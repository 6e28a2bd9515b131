import { describe, expect, it } from "vitest";
import { attachmentsUpTo, messageOf, writtenIn } from "./runtime";

const file = (name: string, bytes: number) => new File([new Uint8Array(bytes)], name, { type: "image/png" });

describe("files that are about to be sent", () => {
  it("are refused once they are too large together, and fit again when one is removed", async () => {
    const adapter = attachmentsUpTo(100);
    const first = await adapter.add({ file: file("a.png", 60) });
    await expect(adapter.add({ file: file("b.png", 50) })).rejects.toThrow();
    if (Symbol.asyncIterator in first) throw new Error("one attachment was expected");
    await adapter.remove(first);
    await expect(adapter.add({ file: file("b.png", 50) })).resolves.toMatchObject({ name: "b.png", type: "image" });
  });

  it("arrive as they were chosen", async () => {
    const adapter = attachmentsUpTo(100);
    const pending = await adapter.add({ file: file("a.png", 3) });
    if (Symbol.asyncIterator in pending) throw new Error("one attachment was expected");
    const sent = await adapter.send(pending);
    const written = writtenIn({ content: [{ type: "text", text: "look" }], attachments: [sent] });
    expect(written.text).toBe("look");
    expect(written.files.map((each) => each.name)).toEqual(["a.png"]);
  });
});

describe("what was said", () => {
  it("keeps its id", () => {
    const item = { type: "compacted", id: "c", turn: 1, at: "", messages: 1, before: 2, after: 1 } as const;
    expect(messageOf(item)).toMatchObject({ id: "c", role: "assistant" });
  });
});
