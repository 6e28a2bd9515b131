/** Reasons of the gateway in the language of the page. */

import { translateServerText } from "@/ui/format/server-text";

type Translate = (key: string, values?: Record<string, string>) => string;

const REFUSALS: readonly (readonly [RegExp, string])[] = [
  [/^it runs in a sandbox/, "mcp.refusal.sandbox"],
  [/is not in its access\.users$/, "mcp.refusal.users"],
  [/is not in its access\.agents$/, "mcp.refusal.agents"],
  [/is not in its access\.tenants$/, "mcp.refusal.tenants"],
];

/** Why a server cannot be used; other reasons as the gateway wrote them. */
export function refusalText(reason: string, t: Translate): string {
  const key = REFUSALS.find(([pattern]) => pattern.test(reason))?.[1];
  return key ? t(key) : translateServerText(reason);
}
