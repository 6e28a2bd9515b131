import { describe, expect, it } from "vitest";
import { freshName, piece, typed } from "./frames";

const text = (found: ReturnType<typeof piece>) => new TextDecoder().decode(found?.bytes);

function replay(offset: number, words: string): ArrayBuffer {
  const bytes = new TextEncoder().encode(words);
  const message = new Uint8Array(9 + bytes.length);
  message[0] = 3;
  new DataView(message.buffer).setBigUint64(1, BigInt(offset));
  message.set(bytes, 9);
  return message.buffer;
}

describe("piece", () => {
  it("counts output", () => {
    const found = piece(new Uint8Array([1, 104, 105]).buffer, 10);
    expect(text(found)).toBe("hi");
    expect(found).toMatchObject({ reset: false, offset: 12 });
  });

  it("goes on with a replay that begins where we were", () => {
    expect(piece(replay(12, "more"), 12)).toMatchObject({ reset: false, offset: 16 });
  });

  it("begins anew with a replay that skips something", () => {
    const found = piece(replay(500, "later"), 12);
    expect(found).toMatchObject({ reset: true, offset: 505 });
    expect(text(found)).toBe("later");
  });

  it("leaves alone what it does not know", () => {
    expect(piece(new Uint8Array([9, 1]).buffer, 0)).toBeNull();
    expect(piece(new Uint8Array([]).buffer, 0)).toBeNull();
    expect(piece(new Uint8Array([3, 1]).buffer, 0)).toBeNull();
  });
});

describe("typed", () => {
  it("begins with the byte of input", () => {
    expect([...typed("ü")]).toEqual([0, 0xc3, 0xbc]);
  });
});

describe("freshName", () => {
  it("takes one that is free", () => {
    expect(freshName([])).toBe("main");
    expect(freshName(["main", "shell-2"])).toBe("shell-3");
  });
});
