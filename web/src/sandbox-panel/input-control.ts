/** Control of a sandbox's mouse and keyboard. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ApiError, api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useCurrentUser } from "@/shell/account/current-user";
import { showErrorToast } from "@/ui/controls/toasts";
import { sandboxPath } from "./sandbox-queries";
import { viewerId } from "./viewer-id";

export type InputHolder = Schema<"InputHolderResponse">;

/** The agent has control unless a person does; `other` includes other windows of the same user. */
export type InputOwner = { who: "agent" } | { who: "me" } | { who: "other"; name: string; mine: boolean };

export function inputOwner(
  holder: InputHolder | null | undefined,
  viewer: string,
  myName: string | undefined,
): InputOwner {
  if (!holder) return { who: "agent" };
  if (holder.viewer === viewer) return { who: "me" };
  return { who: "other", name: holder.name, mine: holder.name === myName };
}

export interface InputControl {
  hand: InputOwner;
  /** Take control; returns false if another person has it and `force` is not set. */
  take: (force?: boolean) => Promise<boolean>;
  handBack: () => Promise<void>;
  busy: boolean;
  /** Refresh the control state. */
  look: () => void;
}

export function useInputControl(sandbox: string, active: boolean): InputControl {
  const viewer = viewerId();
  const me = useCurrentUser().data;
  const queries = useQueryClient();
  const key = ["sandboxPanel", sandbox, "input"];
  const path = `${sandboxPath(sandbox)}/input`;
  const query = useQuery({
    queryKey: key,
    queryFn: async ({ signal }) => (await api.get<Schema<"InputResponse">>(path, { signal })).holder ?? null,
    enabled: active,
    refetchInterval: active ? 3_000 : false,
  });
  const taking = useMutation({
    mutationFn: (force: boolean) =>
      api.post<Schema<"InputResponse">>(path, { viewer, ...(me ? { name: me.name } : {}), force }),
    // A status request sent before control was taken must not overwrite it afterwards.
    onSuccess: async (said) => {
      await queries.cancelQueries({ queryKey: key });
      queries.setQueryData(key, said.holder ?? null);
    },
  });
  const handing = useMutation({
    mutationFn: () => api.delete(path, { query: { viewer } }),
    onSettled: () => void queries.invalidateQueries({ queryKey: key }),
  });
  return {
    hand: inputOwner(query.data, viewer, me?.name),
    busy: taking.isPending || handing.isPending,
    look: () => void query.refetch(),
    take: async (force = false) => {
      try {
        await taking.mutateAsync(force);
        return true;
      } catch (error) {
        void query.refetch();
        if (error instanceof ApiError && error.status === 409 && !force) return false;
        showErrorToast(error);
        return true;
      }
    },
    handBack: async () => {
      try {
        await handing.mutateAsync();
      } catch (error) {
        // Control was already lost, which is the wanted result.
        if (!(error instanceof ApiError && error.status === 409)) showErrorToast(error);
      }
    },
  };
}
