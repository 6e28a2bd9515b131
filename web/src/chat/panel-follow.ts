/** Decides whether the sandbox panel follows the agent. */

import type { View } from "@/sandbox-panel/SandboxPanel";
import type { AgentAttention } from "@/session/types";

export interface PanelChoice {
  sandbox: string;
  view: View;
}

/** How long a manual choice of view takes precedence over the agent's activity. */
export const MANUAL_CHOICE_MS = 10_000;

export interface PanelFollowInput {
  attention: AgentAttention | null;
  /** Number of the last handled agent activity. */
  handledNumber: number;
  chosen: PanelChoice | null;
  /** Time of the person's last action in the panel; 0 if never. */
  usedAt: number;
  /** Whether the person is typing anywhere. */
  typing: boolean;
  now: number;
}

export type PanelFollowAction =
  | { type: "none" }
  | { type: "show"; chosen: PanelChoice }
  | { type: "notify"; chosen: PanelChoice };

/** Show the agent's view, notify about it, or do nothing. */
export function decidePanelFollow({
  attention,
  handledNumber,
  chosen,
  usedAt,
  typing,
  now,
}: PanelFollowInput): PanelFollowAction {
  if (!attention || attention.number <= handledNumber) return { type: "none" };
  const agentChoice: PanelChoice = { sandbox: attention.sandbox, view: attention.view };
  if (chosen && chosen.sandbox === agentChoice.sandbox && chosen.view === agentChoice.view) return { type: "none" };
  const busy = typing || (usedAt > 0 && now - usedAt < MANUAL_CHOICE_MS);
  return busy ? { type: "notify", chosen: agentChoice } : { type: "show", chosen: agentChoice };
}

/** Whether the element takes text input. */
export function isTextInput(element: Element | null): boolean {
  if (!(element instanceof HTMLElement)) return false;
  if (element.isContentEditable || element.closest("[data-takes-keys], .xterm, canvas")) return true;
  if (element instanceof HTMLInputElement) return !["checkbox", "radio", "button", "submit"].includes(element.type);
  return element instanceof HTMLTextAreaElement || element instanceof HTMLSelectElement;
}
