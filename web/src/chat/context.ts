/** What everything in a thread may ask of the page around it. */

import { createContext, useContext } from "react";
import type { View } from "@/computers/Computers";
import type { Decision } from "@/session/store";
import type { BoxView } from "@/session/types";

export interface Chat {
  session: string;
  /** Whether more than one person writes here, so that names matter. */
  several: boolean;
  /** Kinds of computer that the agent may use. */
  kinds: readonly string[];
  boxes: Readonly<Record<string, BoxView>>;
  /** Whether this key may speak and decide here. */
  mayWrite: boolean;
  decide: (decisions: Decision[]) => Promise<void>;
  /** Files that the chat has kept, by their names: the SHA-256 of the newest. */
  kept: Readonly<Record<string, string>>;
  /** Changes when the agent may have changed files. */
  revision: string;
  show: (sandbox: string, view: View, path?: string) => void;
  fork: (message: string) => void;
  goOn: () => void;
  /** Open the chat's settings. */
  openSettings: () => void;
  retry: (outgoing: string) => void;
  discard: (outgoing: string) => void;
}

export const ChatContext = createContext<Chat | null>(null);

export function useChat(): Chat {
  const chat = useContext(ChatContext);
  if (!chat) throw new Error("There is no chat around this.");
  return chat;
}

/** The box in which a call happens or would happen. */
export function boxOf(boxes: Chat["boxes"], sandbox: string | null, kind: string | null): BoxView | null {
  if (sandbox) return boxes[sandbox] ?? null;
  const alive = Object.values(boxes).filter((box) => box.kind === kind && box.state !== "released");
  return alive.at(-1) ?? null;
}
