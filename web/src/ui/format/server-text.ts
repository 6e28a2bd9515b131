/** English messages of the server without an error code, in the language of the page. */

import i18next from "i18next";
import { translateKey } from "./error-text";
import { ADDRESS_ADVICE, SERVER_MESSAGES } from "./server-messages";

/** The message in the language of the page; a message without a translation is marked as the server's. */
export function serverText(message: string): string {
  const advice = ADDRESS_ADVICE.exec(message);
  if (advice) {
    const check = translateKey("errors.text.checkAddress", message, { ...advice.groups });
    return check === null ? message : serverText(message.slice(0, advice.index)) + check;
  }
  for (const [pattern, name] of SERVER_MESSAGES) {
    const found = pattern.exec(message);
    if (found) return translateKey(`errors.text.${name}`, message, { ...found.groups }) ?? message;
  }
  return i18next.t("errors.serverSays", { message });
}
