/** HTTP requests to the server that serves the console. */

import { readStoredValue, writeStoredValue } from "@/ui/hooks/browser-storage";

export type QueryParams = Record<string, string | number | boolean | null | undefined | readonly (string | number)[]>;

export interface RequestOptions {
  /** Sent as JSON, or unchanged if it is a `Blob`, a `FormData` or bytes. */
  body?: unknown;
  query?: QueryParams;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Error code: the provider refused its configured key. */
export const PROVIDER_KEY_REFUSED = "PROVIDER_KEY_REFUSED";

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
let inMemoryKey: string | null = null;
let signedOutListener: () => void = () => {};

export function setInMemoryKey(key: string | null): void {
  inMemoryKey = key;
}

/**
 * Store the CSRF proof outside of the cookie: other ports of the host receive the cookie, but cannot read the proof.
 */
export function storeCsrfProof(proof: string | null): void {
  writeStoredValue("proof", proof);
}

/** Called when the server no longer accepts the session. */
export function setSignedOutListener(listener: () => void): void {
  signedOutListener = listener;
}

/** URL of a path on this server. */
export function buildUrl(path: string, query: QueryParams = {}): string {
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
  if (inMemoryKey) return { Authorization: `Bearer ${inMemoryKey}` };
  // Read each time: another tab may have signed in again.
  return { "X-Paddock-Console": readStoredValue<string | null>("proof", null) ?? "1" };
}

/** Send a request and return the raw response. Throw `ApiError` unless it succeeded. */
export async function fetchRaw(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
  const { body } = options;
  const headers: Record<string, string> = { ...authHeaders(), ...options.headers };
  const isRawBody =
    body === undefined || body instanceof Blob || body instanceof FormData || body instanceof Uint8Array;
  if (!isRawBody) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(buildUrl(path, options.query), {
      method,
      headers,
      body: isRawBody ? (body as BodyInit | undefined) : JSON.stringify(body),
      signal: options.signal,
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "UNREACHABLE", "The server does not answer.");
  }
  if (response.ok || response.status === 304) return response;
  const apiError = await parseErrorResponse(response);
  if (response.status === 401 && apiError.code !== PROVIDER_KEY_REFUSED) signedOutListener();
  throw apiError;
}

async function parseErrorResponse(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  let code = `HTTP_${response.status}`;
  let message = text.slice(0, 300) || response.statusText || code;
  let params: Record<string, string> = {};
  try {
    const document = JSON.parse(text) as Record<string, unknown>;
    // Errors of model requests have the shape of OpenAI's API: `{"error": {"message": …}}`.
    const errorObject = (typeof document.error === "object" && document.error !== null ? document.error : document) as {
      code?: unknown;
      message?: unknown;
      params?: unknown;
    };
    if (typeof errorObject.params === "object" && errorObject.params !== null)
      params = errorObject.params as Record<string, string>;
    if (typeof errorObject.code === "string") code = errorObject.code.toUpperCase();
    if (typeof errorObject.message === "string") message = errorObject.message;
  } catch {
    // A proxy answered instead of the server: show its own text.
  }
  const retryAfterSeconds = Number(response.headers.get("Retry-After"));
  return new ApiError(response.status, code, message, {
    retryAfter: Number.isFinite(retryAfterSeconds) && retryAfterSeconds > 0 ? retryAfterSeconds : null,
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
export async function downloadFile(path: string, name: string, query?: QueryParams): Promise<void> {
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
