/** Session actions of the chat list and the chat menu. */

import i18next from "i18next";
import { create } from "zustand";
import { api, downloadFile } from "@/api/client";
import type { Schema } from "@/api/types";
import { refreshSessionList } from "@/session/session-list";
import { deleteSession, forkSessionAt } from "@/session/store";
import { runWithUndo, showErrorToast, showToast } from "@/ui/controls/toasts";

/** Deleted sessions that can still be restored with Undo. */
export const useHiddenSessions = create<{ ids: ReadonlySet<string> }>(() => ({ ids: new Set() }));

function setSessionHidden(id: string, hidden: boolean): void {
  const ids = new Set(useHiddenSessions.getState().ids);
  if (hidden) ids.add(id);
  else ids.delete(id);
  useHiddenSessions.setState({ ids });
}

export function sessionTitle(session: { title: string }): string {
  return session.title || i18next.t("chat.untitled");
}

export function deleteSessionWithUndo(session: { id: string; title: string }, onLeave?: () => void): void {
  const text = i18next.t("chat.deleted", { title: sessionTitle(session) });
  runWithUndo(text, i18next.t("common.undo"), () => deleteSession(session.id), {
    hide: () => {
      setSessionHidden(session.id, true);
      onLeave?.();
    },
    show: () => setSessionHidden(session.id, false),
  });
}

/** File name that is valid on every system. */
export function sessionExportFileName(title: string): string {
  const safeTitle = title
    .replace(/[\p{C}\\/:*?"<>|]+/gu, " ")
    .replace(/\s+/g, " ")
    .trim();
  return `${safeTitle.slice(0, 80).replace(/^[. ]+|[. ]+$/g, "") || "chat"}.paddock`;
}

export async function exportSession(session: { id: string; title: string }): Promise<void> {
  await downloadFile(`/v1/sessions/${session.id}/export`, sessionExportFileName(session.title)).catch(showErrorToast);
}

export async function forkSession(id: string, message: string | undefined, go: (path: string) => void): Promise<void> {
  try {
    const session = await forkSessionAt(id, message);
    showToast(i18next.t("chat.forked"), { tone: "good" });
    go(`/chats/${session.id}`);
  } catch (error) {
    showErrorToast(error);
  }
}

export async function importSession(file: File, go: (path: string) => void): Promise<void> {
  try {
    const session = await api.post<Schema<"Session">>("/v1/sessions/import", file);
    refreshSessionList();
    showToast(i18next.t("chat.imported", { title: sessionTitle(session) }), { tone: "good" });
    go(`/chats/${session.id}`);
  } catch (error) {
    showErrorToast(error);
  }
}
