/** Signing in and out. */

import { ApiError, api, holdKey, keepProof } from "@/api/client";
import type { Me } from "./me";

/** What the browser was able to keep: a cookie, or only the key in this page's memory. */
export type Kept = "cookie" | "memory";

/** The code in an address such as `/#code=…`, which is taken out of it, so that it is neither kept nor shared. */
export function takeCode(place: Location = window.location): string | null {
  const code = codeIn(place.hash);
  if (code) window.history.replaceState(window.history.state, "", place.pathname + place.search);
  return code;
}

export function codeIn(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, "")).get("code") || null;
}

export async function signInWithKey(key: string): Promise<Kept> {
  holdKey(null);
  await logIn({ key });
  if (await knowsUs()) return "cookie";
  holdKey(key);
  return "memory";
}

/** Raises `CookiesOff` where the browser keeps no cookies: a code works once, so it cannot be held instead. */
export async function signInWithCode(code: string): Promise<void> {
  holdKey(null);
  await logIn({ code });
  if (!(await knowsUs())) throw new CookiesOff();
}

export class CookiesOff extends Error {}

async function logIn(body: { key: string } | { code: string }): Promise<void> {
  const { proof } = await api.post<Me & { proof: string }>("/v1/login", body);
  keepProof(proof);
}

async function knowsUs(): Promise<boolean> {
  try {
    await api.get("/v1/me");
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return false;
    throw error;
  }
}

/** Sign out, and begin anew, so that nothing of what was seen stays in this page. */
export async function signOut(): Promise<void> {
  try {
    await api.post("/v1/logout");
  } catch (error) {
    // Who is not known any more is signed out already.
    if (!(error instanceof ApiError && error.status === 401)) throw error;
  }
  holdKey(null);
  keepProof(null);
  window.location.assign("/");
}
