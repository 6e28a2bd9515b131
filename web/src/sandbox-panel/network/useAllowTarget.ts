/** Allows a target of a denied connection, with undo. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { showErrorToast, showToast } from "@/ui/controls/toasts";
import { sandboxApiPath } from "../sandbox-queries";
import { undoAllowRequest } from "./connections";
import { networkQueryKey, type SandboxNetwork } from "./useSandboxNetwork";

export function useAllowTarget(id: string, policy: readonly string[]) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const patch = async (body: Partial<Schema<"PatchNetworkRequest">>) => {
    const network = await api.patch<SandboxNetwork>(`${sandboxApiPath(id)}/network`, body);
    // A request that began earlier would bring the former policy back.
    await queries.cancelQueries({ queryKey: networkQueryKey(id) });
    queries.setQueryData(networkQueryKey(id), network);
  };
  return useMutation({
    mutationFn: async (target: string) => {
      const before = policy;
      await patch({ allow: [target] });
      return before;
    },
    onSuccess: (before, target) => {
      const undo = async () => {
        dismiss();
        try {
          await patch(undoAllowRequest(before, target));
          showToast(t("network.allowUndone", { target }));
        } catch (error) {
          showErrorToast(error);
        }
      };
      const dismiss = showToast(t("network.allowDone", { target }), {
        tone: "good",
        seconds: 10,
        action: { label: t("common.undo"), run: () => void undo() },
      });
    },
    onError: showErrorToast,
  });
}
