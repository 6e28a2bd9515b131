import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { may, useMe } from "@/shell/me";

/** Titles of the newest chats by their ids, asked for only if they are wanted. */
export function useChatTitles(wanted: boolean): Record<string, string> {
  const me = useMe().data;
  const { data } = useQuery({
    queryKey: ["sessions", "titles"],
    queryFn: ({ signal }) => api.get<Schema<"SessionList">>("/v1/sessions", { query: { pageSize: 100 }, signal }),
    enabled: wanted && may(me, "sessions:read"),
    staleTime: 60_000,
  });
  return useMemo(
    () => Object.fromEntries((data?.items ?? []).flatMap(({ id, title }) => (title ? [[id, title]] : []))),
    [data],
  );
}
