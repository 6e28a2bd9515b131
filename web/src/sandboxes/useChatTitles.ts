import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";

/** Titles of the newest chats by id, fetched only if wanted. */
export function useChatTitles(enabled: boolean): Record<string, string> {
  const me = useCurrentUser().data;
  const { data } = useQuery({
    queryKey: ["sessions", "titles"],
    queryFn: ({ signal }) =>
      api.get<Schema<"SessionListResponse">>("/v1/sessions", { query: { pageSize: 100 }, signal }),
    enabled: enabled && hasScope(me, "sessions:read"),
    staleTime: 60_000,
  });
  return useMemo(
    () => Object.fromEntries((data?.items ?? []).flatMap(({ id, title }) => (title ? [[id, title]] : []))),
    [data],
  );
}
