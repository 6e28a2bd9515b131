/** English messages of the server without an error code, in the language of the page. */

import i18next from "i18next";
import { translateKey } from "./error-text";
import { keyRefusalText } from "./key-refusal";

/** Known messages and the keys of their texts; English needs none. */
let messages: readonly (readonly [RegExp, string])[] = [];
/** Advice that may follow a provider's problem. */
const ADDRESS_ADVICE = /; check its address (?<address>\S+?)(?:, which usually .+)?$/;

/** Load the patterns of server messages; pages in English do not need them. */
export async function loadServerMessages(): Promise<void> {
  messages = (await import("./server-messages")).SERVER_MESSAGES;
}

/** The message in the language of the page; a message without a translation is marked as the server's. */
export function translateServerText(message: string): string {
  const refusal = keyRefusalText(message);
  if (refusal) return refusal;
  const advice = ADDRESS_ADVICE.exec(message);
  if (advice) {
    const check = translateKey("errors.text.checkAddress", message, { ...advice.groups });
    return check === null ? message : translateServerText(message.slice(0, advice.index)) + check;
  }
  for (const [pattern, name] of messages) {
    const found = pattern.exec(message);
    if (found) return translateKey(`errors.text.${name}`, message, { ...found.groups }) ?? message;
  }
  return i18next.t("errors.serverSays", { message });
}
