/** What can be done with sandboxes and snapshots, with its words and its undo. */

import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useState } from "react";
import { useTranslation } from "react-i18next";
import { create } from "zustand";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { toast, toastError, undoable } from "@/ui/toasts";
import { anHourMore, type Deed, type Sandbox } from "./facts";

export const SANDBOXES = "sandboxes";

/** What is about to be deleted is not shown any more, wherever it was. */
const useGoing = create<{ ids: ReadonlySet<string> }>(() => ({ ids: new Set() }));

export function useHidden(): ReadonlySet<string> {
  return useGoing((state) => state.ids);
}

function hide(ids: string[]): void {
  useGoing.setState((state) => ({ ids: new Set([...state.ids, ...ids]) }));
}

function show(ids: string[]): void {
  useGoing.setState((state) => ({ ids: new Set([...state.ids].filter((id) => !ids.includes(id))) }));
}

export function pathOf(id: string): string {
  return `/v1/sandboxes/${encodeURIComponent(id)}`;
}

export function useDeeds() {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const [busy, setBusy] = useState<ReadonlySet<string>>(new Set());

  const again = useCallback(() => queries.invalidateQueries({ queryKey: [SANDBOXES] }), [queries]);

  const remove = useCallback(
    (ids: string[], path: (id: string) => string, text: string) => {
      const run = async () => {
        // Each is tried, so that one that refuses does not keep the others.
        const ends = await Promise.allSettled(ids.map((id) => api.delete(path(id))));
        await again();
        show(ids);
        const failed = ends.find((end) => end.status === "rejected");
        if (failed) throw failed.reason;
      };
      undoable(text, t("common.undo"), run, { hide: () => hide(ids), show: () => show(ids) });
    },
    [again, t],
  );

  const removeBoxes = useCallback(
    (ids: string[]) => remove(ids, pathOf, t("sandboxes.deleted", { count: ids.length })),
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

  const perform = useCallback(
    async (deed: Exclude<Deed, "delete">, boxes: Sandbox[]) => {
      const ids = boxes.map((box) => box.id);
      setBusy((before) => new Set([...before, ...ids]));
      const ends = await Promise.allSettled(boxes.map((box) => doOne(deed, box)));
      for (const end of ends) if (end.status === "rejected") toastError(end.reason);
      if (deed === "snapshot" && ends.some((end) => end.status === "fulfilled"))
        toast(t("sandboxes.snapshots.made"), { tone: "good" });
      await again();
      setBusy((before) => new Set([...before].filter((id) => !ids.includes(id))));
    },
    [again, t],
  );
  return { perform, removeBoxes, removeSnapshots, busy, again };
}

function doOne(deed: Exclude<Deed, "delete">, box: Sandbox): Promise<unknown> {
  const path = pathOf(box.id);
  if (deed === "renew")
    return api.post<Schema<"Renewed">>(`${path}/renew-expiration`, { expiresAt: anHourMore(box, new Date()) });
  if (deed === "snapshot") return api.post<Schema<"SnapshotSaid">>(`${path}/snapshots`, {});
  return api.post<void>(`${path}/${deed}`);
}
