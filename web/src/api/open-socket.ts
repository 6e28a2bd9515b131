/** WebSockets to this server, opened with single-use tickets so that no key appears in a URL. */

import { api, buildUrl, type QueryParams } from "./client";

/** URL of a WebSocket with a new ticket, valid once and for one minute. */
export async function ticketedSocketUrl(path: string, query: QueryParams = {}): Promise<string> {
  const { ticket } = await api.post<{ ticket: string }>("/v1/tickets", { path });
  const scheme = window.location.protocol === "https:" ? "wss" : "ws";
  return `${scheme}://${window.location.host}${buildUrl(path, { ...query, ticket })}`;
}

export async function openSocket(path: string, query?: QueryParams, protocols?: string[]): Promise<WebSocket> {
  return new WebSocket(await ticketedSocketUrl(path, query), protocols);
}
