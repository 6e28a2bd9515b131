/** Creates tar archives in the browser. File contents are not read, only referenced. */

export interface TarEntry {
  /** Path relative to the workspace. */
  path: string;
  content: Blob;
  /** Milliseconds since 1970. */
  modified?: number;
}

const BLOCK = 512;
const encoder = new TextEncoder();

/** Throws an `Error` with the path if it is outside the workspace or occurs twice. */
export function packTar(entries: TarEntry[]): Blob {
  const parts: BlobPart[] = [];
  const paths = new Set<string>();
  for (const { path, content, modified = 0 } of entries) {
    const name = normalizeTarPath(path);
    if (name === null) throw new Error(`${path}: is not a path below the workspace`);
    if (paths.has(name)) throw new Error(`${name}: is there twice; give one of them another target`);
    paths.add(name);
    // The basic header holds 100 ASCII characters and 8 GiB; a PAX record before it holds the rest.
    const paxRecords = [`path=${name}`, ...(content.size >= 8 ** 11 ? [`size=${content.size}`] : [])];
    if (!/^[\x20-\x7e]{1,100}$/.test(name) || paxRecords.length > 1) {
      const records = new Blob(paxRecords.map((record) => lengthPrefixedRecord(record)));
      parts.push(tarHeader("PaxHeader", records.size, 0, "x"), records, tarPadding(records.size));
    }
    parts.push(tarHeader(name, content.size, modified, "0"), content, tarPadding(content.size));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Blob(parts, { type: "application/octet-stream" });
}

/** Normalized path; null if it leaves the workspace or is empty. */
export function normalizeTarPath(path: string): string | null {
  const steps = path
    .replace(/^\/workspace(\/|$)/, "")
    .split("/")
    .filter((step) => step !== "" && step !== ".");
  return path.includes("\0") || steps.includes("..") || steps.length === 0 ? null : steps.join("/");
}

function tarHeader(name: string, size: number, modified: number, type: string): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK);
  const writeField = (at: number, text: string) => block.set(encoder.encode(text), at);
  const octal = (value: number, digits: number) => value.toString(8).padStart(digits, "0");
  block.set(encoder.encode(name).subarray(0, 100));
  writeField(100, "0000644\0");
  writeField(108, "0000000\0");
  writeField(116, "0000000\0");
  writeField(124, `${octal(size < 8 ** 11 ? size : 0, 11)}\0`);
  writeField(136, `${octal(Math.max(0, Math.floor(modified / 1000)), 11)}\0`);
  writeField(148, "        ");
  writeField(156, type);
  writeField(257, "ustar\x0000");
  const sum = block.reduce((total, byte) => total + byte, 0);
  writeField(148, `${octal(sum, 6)}\0 `);
  return block;
}

/** The length at the start of a record includes its own digits. */
function lengthPrefixedRecord(record: string): Uint8Array<ArrayBuffer> {
  const rest = encoder.encode(` ${record}\n`).length;
  let length = rest + String(rest).length;
  if (rest + String(length).length !== length) length += 1;
  return encoder.encode(`${length} ${record}\n`);
}

function tarPadding(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
}
