/** Who has mouse and keyboard of a computer. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ApiError, api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useMe } from "@/shell/me";
import { toastError } from "@/ui/toasts";
import { sandboxPath } from "./box";
import { viewerId } from "./viewer";

export type Holder = Schema<"HolderSaid">;

/** The agent has it while no person does; `other` are people and other windows of our own. */
export type Hand = { who: "agent" } | { who: "me" } | { who: "other"; name: string; mine: boolean };

export function handOf(holder: Holder | null | undefined, viewer: string, myName: string | undefined): Hand {
  if (!holder) return { who: "agent" };
  if (holder.viewer === viewer) return { who: "me" };
  return { who: "other", name: holder.name, mine: holder.name === myName };
}

export interface Input {
  hand: Hand;
  /** Take it; gives false if somebody else has it and `force` was not asked for. */
  take: (force?: boolean) => Promise<boolean>;
  handBack: () => Promise<void>;
  busy: boolean;
  /** Ask again who has it. */
  look: () => void;
}

export function useInput(sandbox: string, active: boolean): Input {
  const viewer = viewerId();
  const me = useMe().data;
  const queries = useQueryClient();
  const key = ["computers", sandbox, "input"];
  const path = `${sandboxPath(sandbox)}/input`;
  const query = useQuery({
    queryKey: key,
    queryFn: async ({ signal }) => (await api.get<Schema<"InputSaid">>(path, { signal })).holder ?? null,
    enabled: active,
    refetchInterval: active ? 3_000 : false,
  });
  const taking = useMutation({
    mutationFn: (force: boolean) =>
      api.post<Schema<"InputSaid">>(path, { viewer, ...(me ? { name: me.name } : {}), force }),
    // What was asked before it was taken must not say afterwards that nobody has it.
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
    hand: handOf(query.data, viewer, me?.name),
    busy: taking.isPending || handing.isPending,
    look: () => void query.refetch(),
    take: async (force = false) => {
      try {
        await taking.mutateAsync(force);
        return true;
      } catch (error) {
        void query.refetch();
        if (error instanceof ApiError && error.status === 409 && !force) return false;
        toastError(error);
        return true;
      }
    },
    handBack: async () => {
      try {
        await handing.mutateAsync();
      } catch (error) {
        // It was lost in the meantime, which is what was wanted.
        if (!(error instanceof ApiError && error.status === 409)) toastError(error);
      }
    },
  };
}
