/** Pending approvals of all chats. */

import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "../account/current-user";

/** Number of pending approvals, and the chat that has waited longest. */
export interface WaitingApprovals {
  count: number;
  path: string;
  /** Time of the newest one; empty if none is pending, null before the first response. */
  newest: string | null;
}

export function useWaitingApprovals(): WaitingApprovals {
  const me = useCurrentUser();
  const { data } = useQuery({
    queryKey: ["shell", "approvals"],
    queryFn: ({ signal }) =>
      api.get<Schema<"ApprovalListResponse">>("/v1/approvals", { query: { state: "pending", pageSize: 100 }, signal }),
    refetchInterval: 5_000,
    // Polled in hidden tabs too, as the tab title shows the number.
    refetchIntervalInBackground: true,
    enabled: hasScope(me.data, "sessions:read"),
  });
  return data ? summarizeWaitingApprovals(data.items) : { ...summarizeWaitingApprovals([]), newest: null };
}

export function summarizeWaitingApprovals(
  items: Pick<Schema<"Approval">, "session" | "created_at">[],
): WaitingApprovals {
  const sorted = [...items].sort((one, other) => one.created_at.localeCompare(other.created_at));
  const oldest = sorted[0];
  return {
    count: items.length,
    path: oldest ? `/chats/${encodeURIComponent(oldest.session)}` : "/chats",
    newest: sorted.at(-1)?.created_at ?? "",
  };
}
