import { describe, expect, it } from "vitest";
import { createAttachmentAdapter, toComposedMessage, toThreadMessage } from "./composer-runtime";

const file = (name: string, bytes: number) => new File([new Uint8Array(bytes)], name, { type: "image/png" });

describe("attachments", () => {
  it("are refused above the total limit, and fit again when one is removed", async () => {
    const adapter = createAttachmentAdapter(100);
    const first = await adapter.add({ file: file("a.png", 60) });
    await expect(adapter.add({ file: file("b.png", 50) })).rejects.toThrow();
    if (Symbol.asyncIterator in first) throw new Error("one attachment was expected");
    await adapter.remove(first);
    await expect(adapter.add({ file: file("b.png", 50) })).resolves.toMatchObject({ name: "b.png", type: "image" });
  });

  it("are sent unchanged", async () => {
    const adapter = createAttachmentAdapter(100);
    const pending = await adapter.add({ file: file("a.png", 3) });
    if (Symbol.asyncIterator in pending) throw new Error("one attachment was expected");
    const sentAttachment = await adapter.send(pending);
    const composed = toComposedMessage({ content: [{ type: "text", text: "look" }], attachments: [sentAttachment] });
    expect(composed.text).toBe("look");
    expect(composed.files.map((each) => each.name)).toEqual(["a.png"]);
  });
});

describe("a message", () => {
  it("keeps its id", () => {
    const item = { type: "compacted", id: "c", turn: 1, at: "", messages: 1, before: 2, after: 1 } as const;
    expect(toThreadMessage(item)).toMatchObject({ id: "c", role: "assistant" });
  });
});
