/** Files of a box, through the daemon in it. */

import { ApiError, address, api, credentials, fetchRaw } from "@/api/client";
import { sandboxPath } from "../box";
import { decoded, encoded, nameOf, shown } from "./paths";

export interface Entry {
  /** Exactly; see `paths.ts`. */
  path: string;
  name: string;
  type: "file" | "directory" | "symlink" | "other";
  size: number;
  modifiedAt: string;
  mode: number;
}

interface Said {
  path: string;
  path_raw?: string;
  size: number;
  modified_at: string;
  mode: number;
  type: Entry["type"];
}

/** Beyond this a directory is cut, so that a hostile one does not fill the page's memory. */
const MOST_ENTRIES = 20_000;
export const START = "/workspace";

function daemon(sandbox: string): string {
  return `${sandboxPath(sandbox)}/proxy/44772`;
}

/** Where what is in a file is. */
export function contentPath(sandbox: string, path: string): string {
  return `${daemon(sandbox)}/files/download?path=${encoded(path)}`;
}

function entryOf(said: Said): Entry {
  const path = said.path_raw === undefined ? said.path : decoded(said.path_raw);
  return {
    path,
    name: nameOf(path),
    type: said.type,
    size: said.size,
    modifiedAt: said.modified_at,
    mode: said.mode,
  };
}

/** Directories first, then by name, as people count. */
function order(entries: Entry[]): Entry[] {
  const collator = new Intl.Collator(undefined, { numeric: true });
  const rank = (entry: Entry) => (entry.type === "directory" ? 0 : 1);
  return entries.sort((one, other) => rank(one) - rank(other) || collator.compare(one.name, other.name));
}

export async function list(sandbox: string, path: string, signal?: AbortSignal, depth = 1): Promise<Entry[]> {
  const query = `path=${encoded(path)}${depth > 1 ? `&depth=${depth}` : ""}`;
  const said = await api.get<Said[]>(`${daemon(sandbox)}/directories/list?${query}`, { signal });
  return order(said.slice(0, MOST_ENTRIES).map(entryOf));
}

/** Files below a directory that were written after a moment, the newest first. */
export async function changedSince(
  sandbox: string,
  path: string,
  since: string,
  signal?: AbortSignal,
): Promise<Entry[]> {
  const said = await api.get<Said[]>(`${daemon(sandbox)}/files/search?path=${encoded(path)}&pattern=**`, { signal });
  return said
    .filter((each) => each.modified_at > since)
    .map(entryOf)
    .sort((one, other) => (one.modifiedAt < other.modifiedAt ? 1 : -1))
    .slice(0, 1000);
}

export async function info(sandbox: string, path: string, signal?: AbortSignal): Promise<Entry> {
  const said = await api.get<Record<string, Said>>(`${daemon(sandbox)}/files/info?path=${encoded(path)}`, { signal });
  const found = Object.values(said)[0];
  if (!found) throw new ApiError(404, "NOT_FOUND", shown(path));
  return entryOf(found);
}

/** The first bytes of a file, `most` at the most. */
export async function read(
  sandbox: string,
  path: string,
  most: number,
  signal?: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  try {
    const answer = await fetchRaw("GET", contentPath(sandbox, path), {
      headers: { Range: `bytes=0-${most - 1}` },
      signal,
    });
    return new Uint8Array(await answer.arrayBuffer()).subarray(0, most);
  } catch (error) {
    // There is no first byte of an empty file.
    if (error instanceof ApiError && error.status === 416) return new Uint8Array();
    throw error;
  }
}

export function blob(sandbox: string, path: string, signal?: AbortSignal): Promise<Blob> {
  return api.blob(contentPath(sandbox, path), { signal });
}

/** A directory, packed. */
export function archive(sandbox: string, path: string): Promise<Blob> {
  return api.blob(`${daemon(sandbox)}/archive?path=${encoded(path)}&gzip=1`);
}

export function move(sandbox: string, from: string, to: string): Promise<void> {
  return done("POST", `${daemon(sandbox)}/files/mv`, [{ src: from, dest: to }]);
}

export function remove(sandbox: string, entry: Entry): Promise<void> {
  const room = entry.type === "directory" ? "directories" : "files";
  return done("DELETE", `${daemon(sandbox)}/${room}?path=${encoded(entry.path)}`);
}

export function makeDirectory(sandbox: string, path: string): Promise<void> {
  return done("POST", `${daemon(sandbox)}/directories`, { [path]: {} });
}

async function done(method: string, path: string, body?: unknown): Promise<void> {
  await (await fetchRaw(method, path, { body })).arrayBuffer();
}

/** Send a file into the box. It appears there whole or not at all; `onProgress` is given shares of 1. */
export function upload(
  sandbox: string,
  path: string,
  content: Blob,
  { mode, onProgress, signal }: { mode?: number; onProgress?: (share: number) => void; signal?: AbortSignal } = {},
): Promise<void> {
  const form = new FormData();
  form.append("metadata", JSON.stringify({ path, ...(mode ? { mode } : {}) }));
  form.append("file", content, "file");
  // `fetch` does not tell how much has been sent.
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", address(`${daemon(sandbox)}/files/upload`));
    for (const [name, value] of Object.entries(credentials())) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", ({ loaded, total }) => onProgress?.(total ? loaded / total : 0));
    request.addEventListener("load", () => {
      if (request.status < 300) resolve();
      else reject(refusal(request));
    });
    request.addEventListener("error", () => reject(new ApiError(0, "UNREACHABLE", "The server does not answer.")));
    request.addEventListener("abort", () => reject(new DOMException("Aborted", "AbortError")));
    signal?.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

function refusal(request: XMLHttpRequest): ApiError {
  try {
    const said = JSON.parse(request.responseText) as { code?: unknown; message?: unknown };
    return new ApiError(request.status, String(said.code), String(said.message));
  } catch {
    return new ApiError(request.status, `HTTP_${request.status}`, request.statusText || `HTTP ${request.status}`);
  }
}

/** What a program in the box writes, if it succeeds; null if it fails or is not there. */
async function output(sandbox: string, argv: string[], cwd: string, signal?: AbortSignal): Promise<string | null> {
  const answer = await fetchRaw("POST", `${daemon(sandbox)}/command`, {
    body: { argv, cwd, timeout: 10_000, raw: true },
    signal,
  });
  let text = "";
  for (const line of (await answer.text()).split("\n\n")) {
    if (!line.trim()) continue;
    const event = JSON.parse(line) as { type: string; text?: string };
    if (event.type === "stdout") text += event.text ?? "";
    if (event.type === "error") return null;
    if (text.length > 2_000_000) return null;
  }
  return text;
}

/** What a file was when it was last committed, if it is in a working tree of git; "" if it is new there. */
export async function committed(sandbox: string, path: string, signal?: AbortSignal): Promise<string | null> {
  const directory = path.slice(0, path.lastIndexOf("/")) || "/";
  const git = (...args: string[]) => output(sandbox, ["git", "--no-pager", ...args], directory, signal);
  if ((await git("rev-parse", "--is-inside-work-tree")) === null) return null;
  return (await git("show", "--no-textconv", `HEAD:./${nameOf(path)}`)) ?? "";
}
