/** Errors about a provider that refused its key. */

import i18next from "i18next";

const KEY_REFUSAL =
  /provider (?<name>\S+) refused the key it is configured with \(status \d+\); check (?<where>\S+) and restart the server/;
const KEY_MISSING = /provider (?<name>\S+) has no key \((?<where>\S+)\)/;

/** The sentence about a refused or missing key, if the server's message has one; agents quote it in their own errors. */
export function keyRefusalText(message: string): string | null {
  const refused = KEY_REFUSAL.exec(message);
  if (refused) return i18next.t("shell.provider.keyRefusedBy", { ...refused.groups });
  const missing = KEY_MISSING.exec(message);
  return missing && i18next.t("shell.provider.keyMissing", { ...missing.groups });
}
