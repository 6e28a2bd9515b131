/** HTTP requests to the server that serves the console. */

import { readStored, writeStored } from "@/ui/hooks/browser-storage";

export type Query = Record<string, string | number | boolean | null | undefined | readonly (string | number)[]>;

export interface RequestOptions {
  /** Sent as JSON, or unchanged if it is a `Blob`, a `FormData` or bytes. */
  body?: unknown;
  query?: Query;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Error code: the provider refused its configured key. */
export const PROVIDER_KEY = "PROVIDER_KEY_REFUSED";

/** An error response of the server. `status` is 0 if the server could not be reached. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  /** Seconds until the request may be retried. */
  readonly retryAfter: number | null;
  /** Id of the error in the server's log. */
  readonly requestId: string | null;
  /** Values for the placeholders of a translated message. */
  readonly params: Readonly<Record<string, string>>;

  constructor(
    status: number,
    code: string,
    message: string,
    more: { retryAfter?: number | null; requestId?: string | null; params?: Record<string, string> } = {},
  ) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.retryAfter = more.retryAfter ?? null;
    this.requestId = more.requestId ?? null;
    this.params = more.params ?? {};
  }

  get unreachable(): boolean {
    return this.status === 0;
  }
}

/** Key held in this page's memory when the browser keeps no cookies. */
let heldKey: string | null = null;
let signedOutListener: () => void = () => {};

export function setHeldKey(key: string | null): void {
  heldKey = key;
}

/**
 * Store the CSRF proof outside of the cookie: other ports of the host receive the cookie, but cannot read the proof.
 */
export function storeCsrfProof(proof: string | null): void {
  writeStored("proof", proof);
}

/** Called when the server no longer accepts the session. */
export function onSignedOut(listener: () => void): void {
  signedOutListener = listener;
}

/** URL of a path on this server. */
export function buildUrl(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) search.append(name, String(each));
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

/** Headers that prove that the request comes from this page; other origins cannot send them. */
export function authHeaders(): Record<string, string> {
  if (heldKey) return { Authorization: `Bearer ${heldKey}` };
  // Read each time: another tab may have signed in again.
  return { "X-Paddock-Console": readStored<string | null>("proof", null) ?? "1" };
}

/** Send a request and return the raw response. Throw `ApiError` unless it succeeded. */
export async function fetchRaw(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
  const { body } = options;
  const headers: Record<string, string> = { ...authHeaders(), ...options.headers };
  const plain = body === undefined || body instanceof Blob || body instanceof FormData || body instanceof Uint8Array;
  if (!plain) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(buildUrl(path, options.query), {
      method,
      headers,
      body: plain ? (body as BodyInit | undefined) : JSON.stringify(body),
      signal: options.signal,
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "UNREACHABLE", "The server does not answer.");
  }
  if (response.ok || response.status === 304) return response;
  const refused = await parseErrorResponse(response);
  if (response.status === 401 && refused.code !== PROVIDER_KEY) signedOutListener();
  throw refused;
}

async function parseErrorResponse(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  let code = `HTTP_${response.status}`;
  let message = text.slice(0, 300) || response.statusText || code;
  let params: Record<string, string> = {};
  try {
    const document = JSON.parse(text) as Record<string, unknown>;
    // Errors of model requests have the shape of OpenAI's API: `{"error": {"message": …}}`.
    const said = (typeof document.error === "object" && document.error !== null ? document.error : document) as {
      code?: unknown;
      message?: unknown;
      params?: unknown;
    };
    if (typeof said.params === "object" && said.params !== null) params = said.params as Record<string, string>;
    if (typeof said.code === "string") code = said.code.toUpperCase();
    if (typeof said.message === "string") message = said.message;
  } catch {
    // A proxy answered instead of the server: show its own text.
  }
  const wait = Number(response.headers.get("Retry-After"));
  return new ApiError(response.status, code, message, {
    retryAfter: Number.isFinite(wait) && wait > 0 ? wait : null,
    requestId: response.headers.get("X-Request-ID"),
    params,
  });
}

async function fetchJson<T>(method: string, path: string, options?: RequestOptions): Promise<T> {
  const response = await fetchRaw(method, path, options);
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

export const api = {
  get: <T>(path: string, options?: RequestOptions) => fetchJson<T>("GET", path, options),
  post: <T>(path: string, body?: unknown, options?: RequestOptions) => fetchJson<T>("POST", path, { ...options, body }),
  put: <T>(path: string, body?: unknown, options?: RequestOptions) => fetchJson<T>("PUT", path, { ...options, body }),
  patch: <T>(path: string, body?: unknown, options?: RequestOptions) =>
    fetchJson<T>("PATCH", path, { ...options, body }),
  delete: <T = void>(path: string, options?: RequestOptions) => fetchJson<T>("DELETE", path, options),
  text: async (path: string, options?: RequestOptions) => (await fetchRaw("GET", path, options)).text(),
  blob: async (path: string, options?: RequestOptions) => (await fetchRaw("GET", path, options)).blob(),
};

/** Download a path as a file; also works without cookies. */
export async function downloadFile(path: string, name: string, query?: Query): Promise<void> {
  saveBlob(await api.blob(path, { query }), name);
}

/** Let the browser save the content as a file. */
export function saveBlob(content: Blob, name: string): void {
  const source = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = source;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(source), 60_000);
}
