/** What waits for a person, in all chats. */

import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { may, useMe } from "./me";

/** How many there are, and where to go to decide: the chat that has waited longest. */
export interface Waiting {
  count: number;
  path: string;
}

export function useWaiting(): Waiting {
  const me = useMe();
  const { data } = useQuery({
    queryKey: ["shell", "approvals"],
    queryFn: ({ signal }) =>
      api.get<Schema<"ApprovalList">>("/v1/approvals", { query: { state: "pending", pageSize: 100 }, signal }),
    refetchInterval: 5_000,
    enabled: may(me.data, "sessions:read"),
  });
  return waiting(data?.items ?? []);
}

export function waiting(items: Pick<Schema<"Approval">, "session" | "created_at">[]): Waiting {
  const oldest = [...items].sort((one, other) => one.created_at.localeCompare(other.created_at))[0];
  return { count: items.length, path: oldest ? `/chats/${encodeURIComponent(oldest.session)}` : "/chats" };
}
