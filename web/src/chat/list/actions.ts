/** What is done with sessions from the list and from a chat's own menu. */

import i18next from "i18next";
import { create } from "zustand";
import { api, download } from "@/api/client";
import type { Schema } from "@/api/types";
import { listChanged } from "@/session/list";
import { fork, remove } from "@/session/store";
import { toast, toastError, undoable } from "@/ui/toasts";

/** Sessions that somebody has just deleted, until that can no longer be undone. */
export const useHidden = create<{ ids: ReadonlySet<string> }>(() => ({ ids: new Set() }));

function hide(id: string, hidden: boolean): void {
  const ids = new Set(useHidden.getState().ids);
  if (hidden) ids.add(id);
  else ids.delete(id);
  useHidden.setState({ ids });
}

export function titleOf(session: { title: string }): string {
  return session.title || i18next.t("chat.untitled");
}

export function deleteSoon(session: { id: string; title: string }, leave?: () => void): void {
  const words = i18next.t("chat.deleted", { title: titleOf(session) });
  undoable(words, i18next.t("common.undo"), () => remove(session.id), {
    hide: () => {
      hide(session.id, true);
      leave?.();
    },
    show: () => hide(session.id, false),
  });
}

/** A file's name that every system takes. */
export function fileNameOf(title: string): string {
  const plain = title
    .replace(/[\p{C}\\/:*?"<>|]+/gu, " ")
    .replace(/\s+/g, " ")
    .trim();
  return `${plain.slice(0, 80).replace(/^[. ]+|[. ]+$/g, "") || "chat"}.paddock`;
}

export async function exportSession(session: { id: string; title: string }): Promise<void> {
  await download(`/v1/sessions/${session.id}/export`, fileNameOf(session.title)).catch(toastError);
}

export async function forkSession(id: string, message: string | undefined, go: (path: string) => void): Promise<void> {
  try {
    const made = await fork(id, message);
    toast(i18next.t("chat.forked"), { tone: "good" });
    go(`/chats/${made.id}`);
  } catch (error) {
    toastError(error);
  }
}

export async function importSession(file: File, go: (path: string) => void): Promise<void> {
  try {
    const made = await api.post<Schema<"Session">>("/v1/sessions/import", file);
    listChanged();
    toast(i18next.t("chat.imported", { title: titleOf(made) }), { tone: "good" });
    go(`/chats/${made.id}`);
  } catch (error) {
    toastError(error);
  }
}
