/** Control of a sandbox's mouse and keyboard. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ApiError, api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useCurrentUser } from "@/shell/account/current-user";
import { showErrorToast } from "@/ui/controls/toasts";
import { sandboxApiPath } from "./sandbox-queries";
import { viewerId } from "./viewer-id";

export type InputHolder = Schema<"InputHolderResponse">;

/** The agent has control unless a person does; `other` includes other windows of the same user. */
export type InputOwner = { type: "agent" } | { type: "me" } | { type: "other"; name: string; sameUser: boolean };

export function inputOwner(
  holder: InputHolder | null | undefined,
  viewer: string,
  myName: string | undefined,
): InputOwner {
  if (!holder) return { type: "agent" };
  if (holder.viewer === viewer) return { type: "me" };
  return { type: "other", name: holder.name, sameUser: holder.name === myName };
}

export interface InputControl {
  owner: InputOwner;
  /** Take control; returns false if another person has it and `force` is not set. */
  take: (force?: boolean) => Promise<boolean>;
  handBack: () => Promise<void>;
  busy: boolean;
  /** Refresh the control state. */
  refresh: () => void;
}

export function useInputControl(sandbox: string, active: boolean): InputControl {
  const viewer = viewerId();
  const me = useCurrentUser().data;
  const queries = useQueryClient();
  const key = ["sandboxPanel", sandbox, "input"];
  const path = `${sandboxApiPath(sandbox)}/input`;
  const query = useQuery({
    queryKey: key,
    queryFn: async ({ signal }) => (await api.get<Schema<"InputResponse">>(path, { signal })).holder ?? null,
    enabled: active,
    refetchInterval: active ? 3_000 : false,
  });
  const takeMutation = useMutation({
    mutationFn: (force: boolean) =>
      api.post<Schema<"InputResponse">>(path, { viewer, ...(me ? { name: me.name } : {}), force }),
    // A status request sent before control was taken must not overwrite it afterwards.
    onSuccess: async (response) => {
      await queries.cancelQueries({ queryKey: key });
      queries.setQueryData(key, response.holder ?? null);
    },
  });
  const handBackMutation = useMutation({
    mutationFn: () => api.delete(path, { query: { viewer } }),
    onSettled: () => void queries.invalidateQueries({ queryKey: key }),
  });
  return {
    owner: inputOwner(query.data, viewer, me?.name),
    busy: takeMutation.isPending || handBackMutation.isPending,
    refresh: () => void query.refetch(),
    take: async (force = false) => {
      try {
        await takeMutation.mutateAsync(force);
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
        await handBackMutation.mutateAsync();
      } catch (error) {
        // Control was already lost, which is the wanted result.
        if (!(error instanceof ApiError && error.status === 409)) showErrorToast(error);
      }
    },
  };
}
