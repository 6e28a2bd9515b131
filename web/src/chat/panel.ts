/** Whether the computers' panel may follow the agent by itself. */

import type { View } from "@/computers/Computers";
import type { Attention } from "@/session/types";

export interface Chosen {
  sandbox: string;
  view: View;
}

/** How long what a person chose stays, whatever the agent does meanwhile. */
export const REST = 10_000;

export interface Situation {
  attention: Attention | null;
  /** The number of the attention that was dealt with last. */
  handled: number;
  chosen: Chosen | null;
  /** When the person last chose something in the panel, or used it; 0 if never. */
  usedAt: number;
  /** Whether the person types somewhere. */
  typing: boolean;
  now: number;
}

export type Move = { type: "none" } | { type: "show"; chosen: Chosen } | { type: "tell"; chosen: Chosen };

/** What to do about what the agent does: show it, tell that there is something, or nothing. */
export function follow({ attention, handled, chosen, usedAt, typing, now }: Situation): Move {
  if (!attention || attention.number <= handled) return { type: "none" };
  const wanted: Chosen = { sandbox: attention.sandbox, view: attention.view };
  if (chosen && chosen.sandbox === wanted.sandbox && chosen.view === wanted.view) return { type: "none" };
  const busy = typing || (usedAt > 0 && now - usedAt < REST);
  return busy ? { type: "tell", chosen: wanted } : { type: "show", chosen: wanted };
}

/** Whether keys that are pressed there are words. */
export function isTyping(element: Element | null): boolean {
  if (!(element instanceof HTMLElement)) return false;
  if (element.isContentEditable || element.closest("[data-takes-keys], .xterm, canvas")) return true;
  if (element instanceof HTMLInputElement) return !["checkbox", "radio", "button", "submit"].includes(element.type);
  return element instanceof HTMLTextAreaElement || element instanceof HTMLSelectElement;
}
