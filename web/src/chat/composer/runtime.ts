/** assistant-ui's runtime over a session of ours: it keeps what is being written, and hands it over when it is sent. */

import {
  type AppendMessage,
  type AttachmentAdapter,
  type PendingAttachment,
  type ThreadMessageLike,
  useExternalStoreRuntime,
} from "@assistant-ui/react";
import i18next from "i18next";
import { useMemo } from "react";
import type { Item, SessionView } from "@/session/types";
import { size } from "@/ui/Time";
import { toast } from "@/ui/toasts";

/** Files of one message together: in Base64 they must fit into a request. */
export const LARGEST = 45_000_000;
/** It links all messages anew at every change, so it is only told of the last ones; the thread has all of them. */
const RECENT = 20;

export interface Written {
  text: string;
  files: File[];
}

let counted = 0;

/** Keeps files in the browser until they are sent. */
export function attachmentsUpTo(largest: number): AttachmentAdapter {
  const held = new Map<string, number>();
  return {
    accept: "*",
    async add({ file }): Promise<PendingAttachment> {
      const total = [...held.values()].reduce((sum, each) => sum + each, 0);
      if (total + file.size > largest) {
        toast(i18next.t("chat.tooLarge", { name: file.name, most: size(largest) }), { tone: "danger" });
        throw new Error("too large");
      }
      counted += 1;
      const id = `file-${counted}`;
      held.set(id, file.size);
      const type = file.type.startsWith("image/") ? "image" : "file";
      const status = { type: "requires-action", reason: "composer-send" } as const;
      return { id, type, name: file.name, contentType: file.type, file, status };
    },
    async remove(attachment) {
      held.delete(attachment.id);
    },
    async send(attachment) {
      held.delete(attachment.id);
      return { ...attachment, status: { type: "complete" }, content: [] };
    },
  };
}

/** What was written, as the session takes it. */
export function writtenIn(message: Pick<AppendMessage, "content" | "attachments">): Written {
  const text = message.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
  return { text, files: (message.attachments ?? []).flatMap((each) => (each.file ? [each.file] : [])) };
}

/** One thing that was said, as assistant-ui has it. */
export function messageOf(item: Item): ThreadMessageLike {
  if (item.type === "said") {
    const text = item.message.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
    return { id: item.id, role: item.message.role === "note" ? "system" : "user", content: [{ type: "text", text }] };
  }
  const text = item.type === "answer" ? item.text : item.type === "error" ? item.text : "";
  return { id: item.id, role: "assistant", content: [{ type: "text", text }] };
}

interface Options {
  view: SessionView | null;
  disabled: boolean;
  onSend: (written: Written) => void | Promise<void>;
}

export function useChatRuntime({ view, disabled, onSend }: Options) {
  const items = view?.items;
  const recent = useMemo(() => items?.slice(-RECENT) ?? [], [items]);
  const attachments = useMemo(() => attachmentsUpTo(LARGEST), []);
  return useExternalStoreRuntime<Item>({
    messages: recent,
    convertMessage: messageOf,
    // To assistant-ui the thread never runs: one may always write, and stopping is ours.
    isRunning: false,
    isDisabled: disabled,
    onNew: async (message) => onSend(writtenIn(message)),
    adapters: { attachments },
  });
}
