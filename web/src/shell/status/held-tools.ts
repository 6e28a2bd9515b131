/** Number of MCP tools that changed and wait for approval. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "../account/current-user";

/** That of the page for tools, so that both show the same. */
export const HELD_TOOLS_QUERY = ["mcp", "servers"];

/** Held tools of all servers, and the page that shows them. */
export interface HeldTools {
  count: number;
  path: string;
}

/** The first page is loaded before the number. */
const FIRST_REQUEST_DELAY_MS = 5_000;

export function useHeldTools(): HeldTools {
  const me = useCurrentUser();
  const [isDue, setIsDue] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setIsDue(true), FIRST_REQUEST_DELAY_MS);
    return () => clearTimeout(timer);
  }, []);
  const { data } = useQuery({
    queryKey: HELD_TOOLS_QUERY,
    queryFn: ({ signal }) => api.get<Schema<"McpServerListResponse">>("/v1/mcp/servers", { signal }),
    refetchInterval: 30_000,
    enabled: isDue && hasScope(me.data, "mcp:use"),
  });
  return summarizeHeldTools(data?.items ?? []);
}

export function summarizeHeldTools(servers: Pick<Schema<"McpServerResponse">, "name" | "held">[]): HeldTools {
  const withHeld = servers.filter((server) => server.held > 0);
  const only = withHeld.length === 1 ? withHeld[0] : undefined;
  return {
    count: withHeld.reduce((sum, server) => sum + server.held, 0),
    path: only ? `/tools/${encodeURIComponent(only.name)}?tab=changes` : "/tools",
  };
}
