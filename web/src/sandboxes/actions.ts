/** Actions for sandboxes and snapshots, with messages and undo. */

import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useState } from "react";
import { useTranslation } from "react-i18next";
import { create } from "zustand";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { runWithUndo, showErrorToast, showToast } from "@/ui/controls/toasts";
import { extendedExpiry, type Sandbox, type SandboxAction } from "./sandbox-properties";

export const SANDBOXES_QUERY = "sandboxes";

/** Entries about to be deleted, hidden on all pages. */
const usePendingDeletions = create<{ ids: ReadonlySet<string> }>(() => ({ ids: new Set() }));

export function useHiddenSandboxes(): ReadonlySet<string> {
  return usePendingDeletions((state) => state.ids);
}

function hideSandboxes(ids: string[]): void {
  usePendingDeletions.setState((state) => ({ ids: new Set([...state.ids, ...ids]) }));
}

function showSandboxes(ids: string[]): void {
  usePendingDeletions.setState((state) => ({ ids: new Set([...state.ids].filter((id) => !ids.includes(id))) }));
}

export function sandboxApiPath(id: string): string {
  return `/v1/sandboxes/${encodeURIComponent(id)}`;
}

export function useSandboxActions() {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const [busy, setBusy] = useState<ReadonlySet<string>>(new Set());

  const refreshSandboxes = useCallback(() => queries.invalidateQueries({ queryKey: [SANDBOXES_QUERY] }), [queries]);

  const remove = useCallback(
    (ids: string[], path: (id: string) => string, text: string) => {
      const run = async () => {
        // Each is tried, so that one failure does not block the others.
        const ends = await Promise.allSettled(ids.map((id) => api.delete(path(id))));
        await refreshSandboxes();
        showSandboxes(ids);
        const failed = ends.find((end) => end.status === "rejected");
        if (failed) throw failed.reason;
      };
      runWithUndo(text, t("common.undo"), run, { hide: () => hideSandboxes(ids), show: () => showSandboxes(ids) });
    },
    [refreshSandboxes, t],
  );

  const removeSandboxes = useCallback(
    (ids: string[]) => remove(ids, sandboxApiPath, t("sandboxes.deleted", { count: ids.length })),
    [remove, t],
  );
  const removeSnapshots = useCallback(
    (ids: string[]) =>
      remove(
        ids,
        (id) => `/v1/snapshots/${encodeURIComponent(id)}`,
        t("sandboxes.snapshots.deleted", { count: ids.length }),
      ),
    [remove, t],
  );

  const performAction = useCallback(
    async (action: Exclude<SandboxAction, "delete">, sandboxes: Sandbox[]) => {
      const ids = sandboxes.map((sandbox) => sandbox.id);
      setBusy((before) => new Set([...before, ...ids]));
      const ends = await Promise.allSettled(sandboxes.map((sandbox) => runAction(action, sandbox)));
      for (const end of ends) if (end.status === "rejected") showErrorToast(end.reason);
      if (action === "snapshot" && ends.some((end) => end.status === "fulfilled"))
        showToast(t("sandboxes.snapshots.made"), { tone: "good" });
      await refreshSandboxes();
      setBusy((before) => new Set([...before].filter((id) => !ids.includes(id))));
    },
    [refreshSandboxes, t],
  );
  return { performAction, removeSandboxes, removeSnapshots, busy, refreshSandboxes };
}

function runAction(action: Exclude<SandboxAction, "delete">, sandbox: Sandbox): Promise<unknown> {
  const path = sandboxApiPath(sandbox.id);
  if (action === "renew")
    return api.post<Schema<"RenewExpirationResponse">>(`${path}/renew-expiration`, {
      expiresAt: extendedExpiry(sandbox, new Date()),
    });
  if (action === "snapshot") return api.post<Schema<"SnapshotResponse">>(`${path}/snapshots`, {});
  return api.post<void>(`${path}/${action}`);
}
