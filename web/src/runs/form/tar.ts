/** Makes a tar of files in the browser. Contents are not read here: a file of any size is only pointed at. */

export interface Entry {
  /** Relative to the workspace. */
  path: string;
  content: Blob;
  /** Milliseconds since 1970. */
  modified?: number;
}

const BLOCK = 512;
const encoder = new TextEncoder();

/** Raises an `Error` that names a path that has no place in the workspace, or that is there twice. */
export function packed(entries: Entry[]): Blob {
  const parts: BlobPart[] = [];
  const seen = new Set<string>();
  for (const { path, content, modified = 0 } of entries) {
    const name = placed(path);
    if (name === null) throw new Error(`${path}: is not a path below the workspace`);
    if (seen.has(name)) throw new Error(`${name}: is there twice; give one of them another target`);
    seen.add(name);
    // The old header has room for a hundred plain letters and eight gigabytes; what goes beyond is told before it.
    const told = [`path=${name}`, ...(content.size >= 8 ** 11 ? [`size=${content.size}`] : [])];
    if (!/^[\x20-\x7e]{1,100}$/.test(name) || told.length > 1) {
      const records = new Blob(told.map((record) => counted(record)));
      parts.push(header("PaxHeader", records.size, 0, "x"), records, padding(records.size));
    }
    parts.push(header(name, content.size, modified, "0"), content, padding(content.size));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Blob(parts, { type: "application/octet-stream" });
}

/** A path without detours; null if it leads out of the workspace or nowhere. */
export function placed(path: string): string | null {
  const steps = path
    .replace(/^\/workspace(\/|$)/, "")
    .split("/")
    .filter((step) => step !== "" && step !== ".");
  return path.includes("\0") || steps.includes("..") || steps.length === 0 ? null : steps.join("/");
}

function header(name: string, size: number, modified: number, type: string): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK);
  const put = (at: number, text: string) => block.set(encoder.encode(text), at);
  const octal = (value: number, digits: number) => value.toString(8).padStart(digits, "0");
  block.set(encoder.encode(name).subarray(0, 100));
  put(100, "0000644\0");
  put(108, "0000000\0");
  put(116, "0000000\0");
  put(124, `${octal(size < 8 ** 11 ? size : 0, 11)}\0`);
  put(136, `${octal(Math.max(0, Math.floor(modified / 1000)), 11)}\0`);
  put(148, "        ");
  put(156, type);
  put(257, "ustar\x0000");
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(148, `${octal(sum, 6)}\0 `);
  return block;
}

/** A record begins with its own length, that of the length included. */
function counted(record: string): Uint8Array<ArrayBuffer> {
  const rest = encoder.encode(` ${record}\n`).length;
  let length = rest + String(rest).length;
  if (rest + String(length).length !== length) length += 1;
  return encoder.encode(`${length} ${record}\n`);
}

function padding(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
}
