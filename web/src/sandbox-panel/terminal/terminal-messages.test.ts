import { describe, expect, it } from "vitest";
import { encodeTerminalInput, parseTerminalOutput, unusedTerminalName } from "./terminal-messages";

const text = (found: ReturnType<typeof parseTerminalOutput>) => new TextDecoder().decode(found?.bytes);

function replay(offset: number, content: string): ArrayBuffer {
  const bytes = new TextEncoder().encode(content);
  const message = new Uint8Array(9 + bytes.length);
  message[0] = 3;
  new DataView(message.buffer).setBigUint64(1, BigInt(offset));
  message.set(bytes, 9);
  return message.buffer;
}

describe("parseTerminalOutput", () => {
  it("counts output", () => {
    const found = parseTerminalOutput(new Uint8Array([1, 104, 105]).buffer, 10);
    expect(text(found)).toBe("hi");
    expect(found).toMatchObject({ reset: false, offset: 12 });
  });

  it("continues with a replay from the current offset", () => {
    expect(parseTerminalOutput(replay(12, "more"), 12)).toMatchObject({ reset: false, offset: 16 });
  });

  it("resets on a replay with a gap", () => {
    const found = parseTerminalOutput(replay(500, "later"), 12);
    expect(found).toMatchObject({ reset: true, offset: 505 });
    expect(text(found)).toBe("later");
  });

  it("ignores unknown messages", () => {
    expect(parseTerminalOutput(new Uint8Array([9, 1]).buffer, 0)).toBeNull();
    expect(parseTerminalOutput(new Uint8Array([]).buffer, 0)).toBeNull();
    expect(parseTerminalOutput(new Uint8Array([3, 1]).buffer, 0)).toBeNull();
  });
});

describe("encodeTerminalInput", () => {
  it("starts with the input byte", () => {
    expect([...encodeTerminalInput("ü")]).toEqual([0, 0xc3, 0xbc]);
  });
});

describe("unusedTerminalName", () => {
  it("returns an unused name", () => {
    expect(unusedTerminalName([])).toBe("main");
    expect(unusedTerminalName(["main", "shell-2"])).toBe("shell-3");
  });
});
