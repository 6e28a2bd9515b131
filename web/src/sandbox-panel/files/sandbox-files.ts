/** Files of a sandbox, through its daemon. */

import { ApiError, api, authHeaders, buildUrl, fetchRaw } from "@/api/client";
import { sandboxApiPath } from "../sandbox-queries";
import { baseName, percentDecodePath, percentEncodePath, safeDisplayName } from "./sandbox-paths";

export interface FileEntry {
  /** Exact path; see `sandbox-paths.ts`. */
  path: string;
  name: string;
  type: "file" | "directory" | "symlink" | "other";
  size: number;
  modifiedAt: string;
  mode: number;
}

interface FileInfoResponse {
  path: string;
  path_raw?: string;
  size: number;
  modified_at: string;
  mode: number;
  type: FileEntry["type"];
}

/** Entry limit per directory, so that a hostile one does not fill the page's memory. */
const MAX_ENTRIES = 20_000;
export const START_DIRECTORY = "/workspace";

function daemonPath(sandbox: string): string {
  return `${sandboxApiPath(sandbox)}/proxy/44772`;
}

/** API path of a file's content. */
export function fileContentPath(sandbox: string, path: string): string {
  return `${daemonPath(sandbox)}/files/download?path=${percentEncodePath(path)}`;
}

function toFileEntry(info: FileInfoResponse): FileEntry {
  const path = info.path_raw === undefined ? info.path : percentDecodePath(info.path_raw);
  return {
    path,
    name: baseName(path),
    type: info.type,
    size: info.size,
    modifiedAt: info.modified_at,
    mode: info.mode,
  };
}

/** Directories first, then by name in natural order. */
function sortEntries(entries: FileEntry[]): FileEntry[] {
  const collator = new Intl.Collator(undefined, { numeric: true });
  const rank = (entry: FileEntry) => (entry.type === "directory" ? 0 : 1);
  return entries.sort((one, other) => rank(one) - rank(other) || collator.compare(one.name, other.name));
}

export async function listDirectory(
  sandbox: string,
  path: string,
  signal?: AbortSignal,
  depth = 1,
): Promise<FileEntry[]> {
  const query = `path=${percentEncodePath(path)}${depth > 1 ? `&depth=${depth}` : ""}`;
  const response = await api.get<FileInfoResponse[]>(`${daemonPath(sandbox)}/directories/list?${query}`, { signal });
  return sortEntries(response.slice(0, MAX_ENTRIES).map(toFileEntry));
}

/** Files below a directory that changed after a given time, newest first. */
export async function listFilesChangedSince(
  sandbox: string,
  path: string,
  since: string,
  signal?: AbortSignal,
): Promise<FileEntry[]> {
  const response = await api.get<FileInfoResponse[]>(
    `${daemonPath(sandbox)}/files/search?path=${percentEncodePath(path)}&pattern=**`,
    { signal },
  );
  return response
    .filter((each) => each.modified_at > since)
    .map(toFileEntry)
    .sort((one, other) => (one.modifiedAt < other.modifiedAt ? 1 : -1))
    .slice(0, 1000);
}

export async function readFileInfo(sandbox: string, path: string, signal?: AbortSignal): Promise<FileEntry> {
  const response = await api.get<Record<string, FileInfoResponse>>(
    `${daemonPath(sandbox)}/files/info?path=${percentEncodePath(path)}`,
    { signal },
  );
  const found = Object.values(response)[0];
  if (!found) throw new ApiError(404, "NOT_FOUND", safeDisplayName(path));
  return toFileEntry(found);
}

/** The first `maxBytes` bytes of a file. */
export async function readFileStart(
  sandbox: string,
  path: string,
  maxBytes: number,
  signal?: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  try {
    const answer = await fetchRaw("GET", fileContentPath(sandbox, path), {
      headers: { Range: `bytes=0-${maxBytes - 1}` },
      signal,
    });
    return new Uint8Array(await answer.arrayBuffer()).subarray(0, maxBytes);
  } catch (error) {
    // An empty file has no byte range.
    if (error instanceof ApiError && error.status === 416) return new Uint8Array();
    throw error;
  }
}

export function readFileBlob(sandbox: string, path: string, signal?: AbortSignal): Promise<Blob> {
  return api.blob(fileContentPath(sandbox, path), { signal });
}

/** Download a directory as an archive. */
export function downloadDirectoryArchive(sandbox: string, path: string): Promise<Blob> {
  return api.blob(`${daemonPath(sandbox)}/archive?path=${percentEncodePath(path)}&gzip=1`);
}

export function movePath(sandbox: string, from: string, to: string): Promise<void> {
  return requestDaemon("POST", `${daemonPath(sandbox)}/files/mv`, [{ src: from, dest: to }]);
}

export function removeFileEntry(sandbox: string, entry: FileEntry): Promise<void> {
  const collection = entry.type === "directory" ? "directories" : "files";
  return requestDaemon("DELETE", `${daemonPath(sandbox)}/${collection}?path=${percentEncodePath(entry.path)}`);
}

export function createDirectory(sandbox: string, path: string): Promise<void> {
  return requestDaemon("POST", `${daemonPath(sandbox)}/directories`, { [path]: {} });
}

async function requestDaemon(method: string, path: string, body?: unknown): Promise<void> {
  await (await fetchRaw(method, path, { body })).arrayBuffer();
}

/** Upload a file atomically; `onProgress` receives a fraction from 0 to 1. */
export function uploadFile(
  sandbox: string,
  path: string,
  content: Blob,
  { mode, onProgress, signal }: { mode?: number; onProgress?: (share: number) => void; signal?: AbortSignal } = {},
): Promise<void> {
  const form = new FormData();
  form.append("metadata", JSON.stringify({ path, ...(mode ? { mode } : {}) }));
  form.append("file", content, "file");
  // `fetch` does not report upload progress.
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", buildUrl(`${daemonPath(sandbox)}/files/upload`));
    for (const [name, value] of Object.entries(authHeaders())) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", ({ loaded, total }) => onProgress?.(total ? loaded / total : 0));
    request.addEventListener("load", () => {
      if (request.status < 300) resolve();
      else reject(uploadError(request));
    });
    request.addEventListener("error", () => reject(new ApiError(0, "UNREACHABLE", "The server does not answer.")));
    request.addEventListener("abort", () => reject(new DOMException("Aborted", "AbortError")));
    signal?.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

function uploadError(request: XMLHttpRequest): ApiError {
  try {
    const body = JSON.parse(request.responseText) as { code?: unknown; message?: unknown };
    return new ApiError(request.status, String(body.code), String(body.message));
  } catch {
    return new ApiError(request.status, `HTTP_${request.status}`, request.statusText || `HTTP ${request.status}`);
  }
}

/** Output of a command in the sandbox; null if it fails or does not exist. */
async function runForOutput(
  sandbox: string,
  argv: string[],
  cwd: string,
  signal?: AbortSignal,
): Promise<string | null> {
  const answer = await fetchRaw("POST", `${daemonPath(sandbox)}/command`, {
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

/** Content of a file at the last git commit; "" if it is new. */
export async function readCommittedFile(sandbox: string, path: string, signal?: AbortSignal): Promise<string | null> {
  const directory = path.slice(0, path.lastIndexOf("/")) || "/";
  const git = (...args: string[]) => runForOutput(sandbox, ["git", "--no-pager", ...args], directory, signal);
  if ((await git("rev-parse", "--is-inside-work-tree")) === null) return null;
  return (await git("show", "--no-textconv", `HEAD:./${baseName(path)}`)) ?? "";
}
