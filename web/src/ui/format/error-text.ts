/** Server errors in the page's language. */

import i18next from "i18next";
import { ApiError } from "@/api/client";
import { keyRefusalText } from "./key-refusal";

export type MessageParams = Readonly<Record<string, string | number>>;

/** Error text for users. */
export function errorText(error: unknown): string {
  if (error instanceof ApiError) return errorCodeText(error.code, error.message, error.params);
  return error instanceof Error ? error.message : String(error);
}

/** Text of an error code, or the server's message if there is no translation. */
export function errorCodeText(code: string, message: string, params: MessageParams = {}): string {
  return keyRefusalText(message) ?? translateKey(`errors.code.${code}`, message, params) ?? message;
}

/** Translation of a key; null if missing, or if a placeholder has no value. */
export function translateKey(key: string, message: string, params: MessageParams): string | null {
  const values: MessageParams = { ...params, message };
  const text: unknown = i18next.getResource(i18next.language, "translation", key);
  if (typeof text !== "string") return null;
  const placeholders = [...text.matchAll(/\{\{\s*(\w+)\s*\}\}/g)].map(([, name]) => name ?? "");
  return placeholders.every((name) => values[name] !== undefined && values[name] !== "")
    ? i18next.t(key, { ...values })
    : null;
}
