/** Pictures of the screen grid. */

export interface ScreenPicture {
  sandbox: string;
  width: number;
  height: number;
  /** Seconds since 1970. */
  at: number;
  jpeg: Uint8Array<ArrayBuffer>;
}

/** Parse a binary message: header length in four bytes, header, JPEG. Null if invalid. */
export function parseScreenPicture(data: ArrayBuffer): ScreenPicture | null {
  if (data.byteLength < 4) return null;
  const length = new DataView(data).getUint32(0);
  if (4 + length > data.byteLength) return null;
  try {
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length))) as Record<string, unknown>;
    if (typeof head.sandbox !== "string") return null;
    return {
      sandbox: head.sandbox,
      width: Number(head.width) || 0,
      height: Number(head.height) || 0,
      at: Number(head.at) || 0,
      jpeg: new Uint8Array(data, 4 + length),
    };
  } catch {
    return null;
  }
}
