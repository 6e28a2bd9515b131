/** Network connections of a sandbox, as the console shows them. */

import type { Schema } from "@/api/types";

export type Connection = Schema<"ConnectionResponse">;
export type ConnectionTotals = Schema<"ConnectionTotalsResponse">;
export type ConnectionOutcome = "open" | "allowed" | "denied" | "failed";

/** `host:port`, as rules contain it. */
export function targetText(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

export function connectionTarget({ name, address, port }: Connection): string {
  return targetText(name ?? address ?? "?", port);
}

export function connectionOutcome(connection: Connection): ConnectionOutcome {
  if (connection.decision === "denied") return "denied";
  if (connection.open) return "open";
  return connection.refusal ? "failed" : "allowed";
}

/** Whether a rule for the target would have allowed the connection. */
export function canAllow({ decision, refusal, name, address }: Connection): boolean {
  return decision === "denied" && (refusal === "no_rule" || refusal === "deny_rule") && Boolean(name ?? address);
}

/** Whether the policy has a rule for exactly this target. */
export function allowsTarget(policy: readonly string[], target: string): boolean {
  return policy.includes(`allow ${target}`);
}

/** Change that takes back the rule `allow TARGET`; it replaced a deny rule for the same target, if there was one. */
export function undoAllowRequest(
  policyBefore: readonly string[],
  target: string,
): Partial<Schema<"PatchNetworkRequest">> {
  return policyBefore.includes(`deny ${target}`) ? { deny: [target] } : { remove: [target] };
}

/** Values for the text of a refusal, from the connection and the server's message. */
export function refusalParams(connection: Connection): Record<string, string> {
  const message = connection.message ?? "";
  return {
    serverName: connection.serverName ?? "?",
    setting: /\((network\.\w+)\)/.exec(message)?.[1] ?? "network",
    detail: /: ([^:]+?)\.?$/.exec(message)?.[1] ?? "?",
  };
}

export interface ConnectionSums {
  connections: number;
  denied: number;
  sentBytes: number;
  receivedBytes: number;
}

export function sumTotals(totals: readonly ConnectionTotals[]): ConnectionSums {
  const sums = { connections: 0, denied: 0, sentBytes: 0, receivedBytes: 0 };
  for (const each of totals) {
    sums.connections += each.connections;
    sums.denied += each.denied;
    sums.sentBytes += each.sentBytes;
    sums.receivedBytes += each.receivedBytes;
  }
  return sums;
}

/** Time of day; with the date if it is not of today. */
export function formatStartTime(at: string, now: Date, language: string): string {
  const date = new Date(at);
  const time = date.toLocaleTimeString(language, { hourCycle: "h23" });
  if (date.toDateString() === now.toDateString()) return time;
  return `${date.toLocaleDateString(language, { month: "short", day: "numeric" })} ${time}`;
}
