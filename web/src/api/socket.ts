/** WebSockets to this server. A ticket that works once opens them, so that no key is ever in an address. */

import { address, api, type Query } from "./client";

/** The address of a WebSocket, with a fresh ticket in it. It works once, within a minute. */
export async function socketAddress(path: string, query: Query = {}): Promise<string> {
  const { ticket } = await api.post<{ ticket: string }>("/v1/tickets", { path });
  const scheme = window.location.protocol === "https:" ? "wss" : "ws";
  return `${scheme}://${window.location.host}${address(path, { ...query, ticket })}`;
}

export async function openSocket(path: string, query?: Query, protocols?: string[]): Promise<WebSocket> {
  return new WebSocket(await socketAddress(path, query), protocols);
}
