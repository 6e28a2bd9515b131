import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";

/** Names of snapshots by id, fetched only if wanted. */
export function useSnapshotNames(enabled: boolean): Record<string, string> {
  const { data } = useQuery({
    queryKey: ["snapshots", "names"],
    queryFn: ({ signal }) =>
      api.get<Schema<"SnapshotListResponse">>("/v1/snapshots", { query: { pageSize: 200 }, signal }),
    enabled,
    staleTime: 60_000,
  });
  return useMemo(
    () => Object.fromEntries((data?.items ?? []).flatMap(({ id, name }) => (name ? [[id, name]] : []))),
    [data],
  );
}
