import { describe, expect, it } from "vitest";
import { picture } from "./wall";

function message(head: string, jpeg: number[]): ArrayBuffer {
  const bytes = new TextEncoder().encode(head);
  const whole = new Uint8Array(4 + bytes.length + jpeg.length);
  new DataView(whole.buffer).setUint32(0, bytes.length);
  whole.set(bytes, 4);
  whole.set(jpeg, 4 + bytes.length);
  return whole.buffer;
}

describe("picture", () => {
  it("has a head and a JPEG", () => {
    const head = '{"sandbox": "sb-1", "sequence": 3, "width": 320, "height": 200, "at": 12.5}';
    const found = picture(message(head, [0xff, 0xd8]));
    expect(found).toMatchObject({ sandbox: "sb-1", width: 320, height: 200, at: 12.5 });
    expect([...(found?.jpeg ?? [])]).toEqual([0xff, 0xd8]);
  });

  it("is none if it is too short, says a wrong length, or has no head", () => {
    expect(picture(new ArrayBuffer(2))).toBeNull();
    expect(picture(new Uint8Array([0, 0, 1, 0, 1]).buffer)).toBeNull();
    expect(picture(message("{", []))).toBeNull();
    expect(picture(message("{}", []))).toBeNull();
  });
});
