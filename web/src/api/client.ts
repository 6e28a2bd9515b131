/** Requests to the server this page came from. */

import { recall, remember } from "@/ui/remember";

export type Query = Record<string, string | number | boolean | null | undefined | readonly (string | number)[]>;

export interface Options {
  /** Sent as JSON, or as it is if it is a `Blob`, a `FormData` or bytes. */
  body?: unknown;
  query?: Query;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** What the server refused, in its words. `status` is 0 if it could not be reached. */
/** The code of errors about the key that a provider of models is configured with. */
export const PROVIDER_KEY = "PROVIDER_KEY_REFUSED";

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  /** Seconds after which to ask again. */
  readonly retryAfter: number | null;
  /** What the server's log has it under. */
  readonly requestId: string | null;
  /** Values of the message, for texts in other languages. */
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

/** The key, where the browser keeps no cookies: in this page's memory, and nowhere else. */
let heldKey: string | null = null;
let signedOut: () => void = () => {};

export function holdKey(key: string | null): void {
  heldKey = key;
}

/** Keep the half of a login that is not in the cookie. Other ports of this host get the cookie, but cannot read this. */
export function keepProof(proof: string | null): void {
  remember("proof", proof);
}

/** Called whenever the server says that it does not know us any more. */
export function onSignedOut(listener: () => void): void {
  signedOut = listener;
}

/** An address on this server. */
export function address(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) search.append(name, String(each));
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

/** Headers that say that it is this page which asks; other pages cannot send them. */
export function credentials(): Record<string, string> {
  if (heldKey) return { Authorization: `Bearer ${heldKey}` };
  // Read each time: another tab may have signed in anew.
  return { "X-Paddock-Console": recall<string | null>("proof", null) ?? "1" };
}

/** Ask, and give the answer as it is. Raises `ApiError` for everything that is no success. */
export async function fetchRaw(method: string, path: string, options: Options = {}): Promise<Response> {
  const { body } = options;
  const headers: Record<string, string> = { ...credentials(), ...options.headers };
  const plain = body === undefined || body instanceof Blob || body instanceof FormData || body instanceof Uint8Array;
  if (!plain) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(address(path, options.query), {
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
  const refused = await refusal(response);
  if (response.status === 401 && refused.code !== PROVIDER_KEY) signedOut();
  throw refused;
}

async function refusal(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  let code = `HTTP_${response.status}`;
  let message = text.slice(0, 300) || response.statusText || code;
  let params: Record<string, string> = {};
  try {
    const document = JSON.parse(text) as Record<string, unknown>;
    // Requests to models are refused in the shape of OpenAI's API: `{"error": {"message": …}}`.
    const said = (typeof document.error === "object" && document.error !== null ? document.error : document) as {
      code?: unknown;
      message?: unknown;
      params?: unknown;
    };
    if (typeof said.params === "object" && said.params !== null) params = said.params as Record<string, string>;
    if (typeof said.code === "string") code = said.code.toUpperCase();
    if (typeof said.message === "string") message = said.message;
  } catch {
    // Something between us and the server answered: its own words will do.
  }
  const wait = Number(response.headers.get("Retry-After"));
  return new ApiError(response.status, code, message, {
    retryAfter: Number.isFinite(wait) && wait > 0 ? wait : null,
    requestId: response.headers.get("X-Request-ID"),
    params,
  });
}

async function fetchJson<T>(method: string, path: string, options?: Options): Promise<T> {
  const response = await fetchRaw(method, path, options);
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

export const api = {
  get: <T>(path: string, options?: Options) => fetchJson<T>("GET", path, options),
  post: <T>(path: string, body?: unknown, options?: Options) => fetchJson<T>("POST", path, { ...options, body }),
  put: <T>(path: string, body?: unknown, options?: Options) => fetchJson<T>("PUT", path, { ...options, body }),
  patch: <T>(path: string, body?: unknown, options?: Options) => fetchJson<T>("PATCH", path, { ...options, body }),
  delete: <T = void>(path: string, options?: Options) => fetchJson<T>("DELETE", path, options),
  text: async (path: string, options?: Options) => (await fetchRaw("GET", path, options)).text(),
  blob: async (path: string, options?: Options) => (await fetchRaw("GET", path, options)).blob(),
};

/** Have the browser save what is at a path, also where it keeps no cookies. */
export async function download(path: string, name: string, query?: Query): Promise<void> {
  save(await api.blob(path, { query }), name);
}

/** Have the browser save this. */
export function save(content: Blob, name: string): void {
  const source = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = source;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(source), 60_000);
}
