/** Context that the parts of a chat share. */

import { createContext, useContext } from "react";
import type { View } from "@/sandbox-panel/SandboxPanel";
import type { ApprovalDecision } from "@/session/store";
import type { SandboxView } from "@/session/types";

export interface ChatContextValue {
  session: string;
  /** Whether several people write in this chat, so that names are shown. */
  several: boolean;
  /** Kinds of sandbox that the agent may use. */
  kinds: readonly string[];
  sandboxes: Readonly<Record<string, SandboxView>>;
  /** Whether the user may write and decide in this chat. */
  mayWrite: boolean;
  decide: (decisions: ApprovalDecision[]) => Promise<void>;
  /** Files saved in the chat: name to SHA-256 of the newest version. */
  keptFiles: Readonly<Record<string, string>>;
  /** Changes when the agent may have changed files. */
  revision: string;
  show: (sandbox: string, view: View, path?: string) => void;
  fork: (message: string) => void;
  continueTurn: () => void;
  openSettings: () => void;
  retry: (outgoing: string) => void;
  discard: (outgoing: string) => void;
}

export const ChatContext = createContext<ChatContextValue | null>(null);

export function useChatContext(): ChatContextValue {
  const chat = useContext(ChatContext);
  if (!chat) throw new Error("There is no chat around this.");
  return chat;
}

/** Sandbox in which a call runs or would run. */
export function sandboxForCall(
  sandboxes: ChatContextValue["sandboxes"],
  sandboxId: string | null,
  kind: string | null,
): SandboxView | null {
  if (sandboxId) return sandboxes[sandboxId] ?? null;
  const alive = Object.values(sandboxes).filter((sandbox) => sandbox.kind === kind && sandbox.state !== "released");
  return alive.at(-1) ?? null;
}
