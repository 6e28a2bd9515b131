/** Errors of the server in the language of the page. */

import i18next from "i18next";
import { ApiError } from "@/api/client";

export type Params = Readonly<Record<string, string | number>>;

/** What went wrong, for people. */
export function describe(error: unknown): string {
  if (error instanceof ApiError) return describeCode(error.code, error.message, error.params);
  return error instanceof Error ? error.message : String(error);
}

/** The sentence for an error code, or the server's own message where the language has no sentence for it. */
export function describeCode(code: string, message: string, params: Params = {}): string {
  return translated(`errors.code.${code}`, message, params) ?? message;
}

/** A text of the page's language alone; null if there is none, or if it needs a value that is not there. */
export function translated(key: string, message: string, params: Params): string | null {
  const values: Params = { ...params, message };
  const text: unknown = i18next.getResource(i18next.language, "translation", key);
  if (typeof text !== "string") return null;
  const needed = [...text.matchAll(/\{\{\s*(\w+)\s*\}\}/g)].map(([, name]) => name ?? "");
  return needed.every((name) => values[name] !== undefined && values[name] !== "")
    ? i18next.t(key, { ...values })
    : null;
}
