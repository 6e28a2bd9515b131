/** What waits for a person, in all chats. */

import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { may, useMe } from "./me";

/** How many there are, and where to go to decide: the chat that has waited longest. */
export interface Waiting {
  count: number;
  path: string;
  /** When the newest of them was asked for; empty if none waits, null before the server has answered. */
  newest: string | null;
}

export function useWaiting(): Waiting {
  const me = useMe();
  const { data } = useQuery({
    queryKey: ["shell", "approvals"],
    queryFn: ({ signal }) =>
      api.get<Schema<"ApprovalList">>("/v1/approvals", { query: { state: "pending", pageSize: 100 }, signal }),
    refetchInterval: 5_000,
    // The browser's tab tells of it, which is seen just while the page is not.
    refetchIntervalInBackground: true,
    enabled: may(me.data, "sessions:read"),
  });
  return data ? waiting(data.items) : { ...waiting([]), newest: null };
}

export function waiting(items: Pick<Schema<"Approval">, "session" | "created_at">[]): Waiting {
  const sorted = [...items].sort((one, other) => one.created_at.localeCompare(other.created_at));
  const oldest = sorted[0];
  return {
    count: items.length,
    path: oldest ? `/chats/${encodeURIComponent(oldest.session)}` : "/chats",
    newest: sorted.at(-1)?.created_at ?? "",
  };
}
