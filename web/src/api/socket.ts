/** WebSockets to this server, opened with single-use tickets so that no key appears in a URL. */

import { api, buildUrl, type Query } from "./client";

/** URL of a WebSocket with a new ticket, valid once and for one minute. */
export async function socketAddress(path: string, query: Query = {}): Promise<string> {
  const { ticket } = await api.post<{ ticket: string }>("/v1/tickets", { path });
  const scheme = window.location.protocol === "https:" ? "wss" : "ws";
  return `${scheme}://${window.location.host}${buildUrl(path, { ...query, ticket })}`;
}

export async function openSocket(path: string, query?: Query, protocols?: string[]): Promise<WebSocket> {
  return new WebSocket(await socketAddress(path, query), protocols);
}
