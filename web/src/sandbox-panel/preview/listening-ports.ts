/** Ports of programs in a sandbox, and their previews. */

import type { Schema } from "@/api/types";

export type Preview = Schema<"PreviewResponse">;

export interface PortChoice {
  port: number;
  listening: boolean;
}

/** Ports that are new since the last look; none at the first look. */
export function newPorts(before: readonly number[] | null, now: readonly number[]): number[] {
  return before === null ? [] : now.filter((port) => !before.includes(port));
}

/** Ports to choose from: ports with a program or a preview, and the chosen one. */
export function portChoices(
  listening: readonly number[],
  previews: readonly Preview[],
  chosen: number | null,
): PortChoice[] {
  const ports = new Set([...listening, ...previews.map(({ port }) => port), ...(chosen === null ? [] : [chosen])]);
  return [...ports].sort((one, other) => one - other).map((port) => ({ port, listening: listening.includes(port) }));
}

/** Port to show unless one is chosen: a program with a preview, else any preview, else any program. */
export function defaultPort(listening: readonly number[], previews: readonly Preview[]): number | null {
  const shared = previews.map(({ port }) => port);
  return shared.find((port) => listening.includes(port)) ?? shared[0] ?? listening[0] ?? null;
}

/** Port number in a text; null if there is none. */
export function parsePort(text: string): number | null {
  const port = /^\d{1,5}$/.test(text.trim()) ? Number(text) : 0;
  return port >= 1 && port <= 65535 ? port : null;
}

/** Address for other browsers; the server's answer is relative to its own address. */
export function fullAddress(link: string, page: string): string {
  return new URL(link, page).href;
}

/**
 * What a page in a frame may do. With a name of its own it may use its origin; else it has none,
 * which the server's content policy ensures too.
 */
export function frameSandbox(link: string): string {
  const allowed = "allow-downloads allow-forms allow-popups allow-scripts";
  return link.startsWith("//") ? `${allowed} allow-same-origin` : allowed;
}
