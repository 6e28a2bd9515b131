/** What can be done with runs: stopped, tried again, forgotten. */

import { useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { create } from "zustand";
import { toast, toastError, undoable } from "@/ui/toasts";
import { cancelRun, deleteRun, isOver, type Run, retryRun } from "./asking";

/** Runs that are about to be deleted, on whatever page that was asked for. */
const useHidden = create<{ ids: ReadonlySet<string> }>(() => ({ ids: new Set() }));

export function useDoing() {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const client = useQueryClient();
  const hidden = useHidden((state) => state.ids);
  const refresh = () => client.invalidateQueries({ queryKey: ["runs"] });

  const cancel = async (runs: Run[], hard: boolean) => {
    const asked = await Promise.allSettled(
      runs.filter((run) => !isOver(run.state)).map((run) => cancelRun(run.id, hard)),
    );
    const failed = asked.find((each) => each.status === "rejected");
    if (failed) toastError(failed.reason);
    else toast(t("runs.cancelling", { count: asked.length }));
    await refresh();
  };

  /** One run that is tried again is shown; of several, only how many. */
  const retry = async (runs: Run[]) => {
    try {
      const made = await Promise.all(runs.map((run) => retryRun(run.id)));
      const [first] = made;
      if (made.length === 1 && first) go(`/runs/${first.id}`);
      else toast(t("runs.retried", { count: made.length }), { tone: "good" });
    } catch (error) {
      toastError(error);
    }
    await refresh();
  };

  const remove = (runs: Run[], after?: () => void) => {
    const ids = runs.filter((run) => isOver(run.state)).map((run) => run.id);
    if (ids.length === 0) return;
    const without = (from: ReadonlySet<string>) => new Set([...from].filter((id) => !ids.includes(id)));
    undoable(
      t("runs.deleted", { count: ids.length, name: runs[0]?.name }),
      t("common.undo"),
      async () => {
        await Promise.all(ids.map(deleteRun));
        await refresh();
      },
      {
        hide: () => {
          useHidden.setState(({ ids: now }) => ({ ids: new Set([...now, ...ids]) }));
          after?.();
        },
        show: () => useHidden.setState(({ ids: now }) => ({ ids: without(now) })),
      },
    );
  };
  return { hidden, cancel, retry, remove };
}
