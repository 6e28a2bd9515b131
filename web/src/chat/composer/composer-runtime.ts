/** assistant-ui runtime backed by a Paddock session: it holds the draft and passes it on when sent. */

import {
  type AppendMessage,
  type AttachmentAdapter,
  type PendingAttachment,
  type ThreadMessageLike,
  useExternalStoreRuntime,
} from "@assistant-ui/react";
import i18next from "i18next";
import { useMemo } from "react";
import type { ChatItem, SessionView } from "@/session/types";
import { showToast } from "@/ui/controls/toasts";
import { formatBytes } from "@/ui/format/formats";

/** Size limit of a message's attachments; in Base64 they must fit into one request. */
export const MAX_ATTACHMENT_BYTES = 45_000_000;
/** assistant-ui relinks all messages on every change, so it gets only the last ones; the chat itself shows all. */
const RECENT_MESSAGES = 20;

export interface ComposedMessage {
  text: string;
  files: File[];
}

let attachmentCounter = 0;

/** Keeps attached files in the browser until they are sent. */
export function createAttachmentAdapter(maxBytes: number): AttachmentAdapter {
  const attachmentSizes = new Map<string, number>();
  return {
    accept: "*",
    async add({ file }): Promise<PendingAttachment> {
      const total = [...attachmentSizes.values()].reduce((sum, each) => sum + each, 0);
      if (total + file.size > maxBytes) {
        showToast(i18next.t("chat.tooLarge", { name: file.name, most: formatBytes(maxBytes) }), { tone: "danger" });
        throw new Error("too large");
      }
      attachmentCounter += 1;
      const id = `file-${attachmentCounter}`;
      attachmentSizes.set(id, file.size);
      const type = file.type.startsWith("image/") ? "image" : "file";
      const status = { type: "requires-action", reason: "composer-send" } as const;
      return { id, type, name: file.name, contentType: file.type, file, status };
    },
    async remove(attachment) {
      attachmentSizes.delete(attachment.id);
    },
    async send(attachment) {
      attachmentSizes.delete(attachment.id);
      return { ...attachment, status: { type: "complete" }, content: [] };
    },
  };
}

/** Text and files of a composed message. */
export function toComposedMessage(message: Pick<AppendMessage, "content" | "attachments">): ComposedMessage {
  const text = message.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
  return { text, files: (message.attachments ?? []).flatMap((each) => (each.file ? [each.file] : [])) };
}

/** Convert a chat item to an assistant-ui message. */
export function toThreadMessage(item: ChatItem): ThreadMessageLike {
  if (item.type === "message") {
    const text = item.message.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
    return { id: item.id, role: item.message.role === "note" ? "system" : "user", content: [{ type: "text", text }] };
  }
  const text = item.type === "answer" ? item.text : item.type === "error" ? item.text : "";
  return { id: item.id, role: "assistant", content: [{ type: "text", text }] };
}

interface Options {
  view: SessionView | null;
  disabled: boolean;
  onSend: (composed: ComposedMessage) => void | Promise<void>;
}

export function useChatRuntime({ view, disabled, onSend }: Options) {
  const items = view?.items;
  const recent = useMemo(() => items?.slice(-RECENT_MESSAGES) ?? [], [items]);
  const attachments = useMemo(() => createAttachmentAdapter(MAX_ATTACHMENT_BYTES), []);
  return useExternalStoreRuntime<ChatItem>({
    messages: recent,
    convertMessage: toThreadMessage,
    // Never "running" for assistant-ui: writing is always allowed, and Paddock handles stopping.
    isRunning: false,
    isDisabled: disabled,
    onNew: async (message) => onSend(toComposedMessage(message)),
    adapters: { attachments },
  });
}
