/** Actions for runs: cancel, retry, delete. */

import { useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { create } from "zustand";
import { runWithUndo, showErrorToast, showToast } from "@/ui/controls/toasts";
import { cancelRun, deleteRun, isRunOver, type Run, retryRun } from "./api";

/** Runs that are about to be deleted, on all pages. */
const useHiddenRuns = create<{ ids: ReadonlySet<string> }>(() => ({ ids: new Set() }));

export function useRunActions() {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const client = useQueryClient();
  const hidden = useHiddenRuns((state) => state.ids);
  const refresh = () => client.invalidateQueries({ queryKey: ["runs"] });

  const cancel = async (runs: Run[], hard: boolean) => {
    const results = await Promise.allSettled(
      runs.filter((run) => !isRunOver(run.state)).map((run) => cancelRun(run.id, hard)),
    );
    const failed = results.find((each) => each.status === "rejected");
    if (failed) showErrorToast(failed.reason);
    else showToast(t("runs.cancelling", { count: results.length }));
    await refresh();
  };

  /** A single retried run is opened; for several, only their number is shown. */
  const retry = async (runs: Run[]) => {
    try {
      const retried = await Promise.all(runs.map((run) => retryRun(run.id)));
      const [first] = retried;
      if (retried.length === 1 && first) go(`/runs/${first.id}`);
      else showToast(t("runs.retried", { count: retried.length }), { tone: "good" });
    } catch (error) {
      showErrorToast(error);
    }
    await refresh();
  };

  const remove = (runs: Run[], after?: () => void) => {
    const ids = runs.filter((run) => isRunOver(run.state)).map((run) => run.id);
    if (ids.length === 0) return;
    const without = (from: ReadonlySet<string>) => new Set([...from].filter((id) => !ids.includes(id)));
    runWithUndo(
      t("runs.deleted", { count: ids.length, name: runs[0]?.name }),
      t("common.undo"),
      async () => {
        await Promise.all(ids.map(deleteRun));
        await refresh();
      },
      {
        hide: () => {
          useHiddenRuns.setState(({ ids: hiddenIds }) => ({ ids: new Set([...hiddenIds, ...ids]) }));
          after?.();
        },
        show: () => useHiddenRuns.setState(({ ids: hiddenIds }) => ({ ids: without(hiddenIds) })),
      },
    );
  };
  return { hidden, cancel, retry, remove };
}
