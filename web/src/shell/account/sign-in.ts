/** Signing in and out. */

import { ApiError, api, setInMemoryKey, storeCsrfProof } from "@/api/client";
import type { CurrentUser } from "./current-user";

/** Where the credential is kept: in a cookie, or only in this page's memory. */
export type CredentialStorage = "cookie" | "memory";

/** Take the code from a URL such as `/#code=…` and remove it there, so that it is neither stored nor shared. */
export function consumeSignInCode(location: Location = window.location): string | null {
  const code = parseSignInCode(location.hash);
  if (code) window.history.replaceState(window.history.state, "", location.pathname + location.search);
  return code;
}

export function parseSignInCode(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, "")).get("code") || null;
}

export async function signInWithKey(key: string): Promise<CredentialStorage> {
  setInMemoryKey(null);
  await requestLogin({ key });
  if (await isSignedIn()) return "cookie";
  setInMemoryKey(key);
  return "memory";
}

/** Throws `CookiesDisabledError` without cookies: a code works once, so it cannot be kept instead. */
export async function signInWithCode(code: string): Promise<void> {
  setInMemoryKey(null);
  await requestLogin({ code });
  if (!(await isSignedIn())) throw new CookiesDisabledError();
}

export class CookiesDisabledError extends Error {}

async function requestLogin(body: { key: string } | { code: string }): Promise<void> {
  const { proof } = await api.post<CurrentUser & { proof: string }>("/v1/login", body);
  storeCsrfProof(proof);
}

async function isSignedIn(): Promise<boolean> {
  try {
    await api.get("/v1/me");
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return false;
    throw error;
  }
}

/** Sign out and reload, so that no data stays in this page. */
export async function signOut(): Promise<void> {
  try {
    await api.post("/v1/logout");
  } catch (error) {
    // A 401 means that the user is already signed out.
    if (!(error instanceof ApiError && error.status === 401)) throw error;
  }
  setInMemoryKey(null);
  storeCsrfProof(null);
  window.location.assign("/");
}
