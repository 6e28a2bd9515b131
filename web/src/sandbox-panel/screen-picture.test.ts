import { describe, expect, it } from "vitest";
import { parseScreenPicture } from "./screen-picture";

function message(head: string, jpeg: number[]): ArrayBuffer {
  const bytes = new TextEncoder().encode(head);
  const frame = new Uint8Array(4 + bytes.length + jpeg.length);
  new DataView(frame.buffer).setUint32(0, bytes.length);
  frame.set(bytes, 4);
  frame.set(jpeg, 4 + bytes.length);
  return frame.buffer;
}

describe("parseScreenPicture", () => {
  it("has a header and a JPEG", () => {
    const head = '{"sandbox": "sb-1", "sequence": 3, "width": 320, "height": 200, "at": 12.5}';
    const found = parseScreenPicture(message(head, [0xff, 0xd8]));
    expect(found).toMatchObject({ sandbox: "sb-1", width: 320, height: 200, at: 12.5 });
    expect([...(found?.jpeg ?? [])]).toEqual([0xff, 0xd8]);
  });

  it("is null if too short, of wrong length, or without header", () => {
    expect(parseScreenPicture(new ArrayBuffer(2))).toBeNull();
    expect(parseScreenPicture(new Uint8Array([0, 0, 1, 0, 1]).buffer)).toBeNull();
    expect(parseScreenPicture(message("{", []))).toBeNull();
    expect(parseScreenPicture(message("{}", []))).toBeNull();
  });
});
