/** Requests to the MCP gateway. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { ApiError, api, fetchRaw } from "@/api/client";
import { parseServerSentEvent } from "@/api/event-stream";
import type { Schema } from "@/api/types";

/** That of the navigation's badge too, which is not imported: it would become a file of its own on every first visit. */
export const MCP_SERVERS_QUERY = ["mcp", "servers"];

export type McpServer = Schema<"McpServerResponse">;
export type McpSet = Schema<"McpSetResponse">;
export type McpCall = Schema<"McpCallRecordResponse">;
export type HeldTool = Schema<"HeldToolResponse">;

/** A tool as in the protocol. All of it is written by the server, so nothing is trusted. */
export interface McpTool {
  name: string;
  title: string;
  description: string;
  inputSchema: Record<string, unknown>;
  outputSchema: unknown;
  annotations: Record<string, unknown>;
}

export interface McpProgress {
  progress?: number;
  total?: number;
  message?: string;
}

export const serverPath = (name: string) => `/v1/mcp/servers/${encodeURIComponent(name)}`;

export function useMcpServers() {
  return useQuery({
    queryKey: MCP_SERVERS_QUERY,
    queryFn: ({ signal }) => api.get<Schema<"McpServerListResponse">>("/v1/mcp/servers", { signal }),
    refetchInterval: 10_000,
  });
}

export function useMcpServer(name: string, sandbox: string) {
  return useQuery({
    queryKey: ["mcp", "server", name, sandbox],
    queryFn: ({ signal }) => api.get<McpServer>(serverPath(name), { query: { sandbox }, signal }),
    refetchInterval: 10_000,
  });
}

/** Tools of a server. The request connects to the server, so it is not repeated by itself, and its state changes. */
export function useMcpTools(name: string, sandbox: string, enabled: boolean) {
  const queries = useQueryClient();
  return useQuery({
    queryKey: ["mcp", "tools", name, sandbox],
    queryFn: async ({ signal }) => {
      try {
        const path = `${serverPath(name)}/tools`;
        const list = await api.get<Schema<"McpToolListResponse">>(path, { query: { sandbox }, signal });
        return list.items.map(parseMcpTool);
      } finally {
        void queries.invalidateQueries({ queryKey: MCP_SERVERS_QUERY });
        void queries.invalidateQueries({ queryKey: ["mcp", "server", name] });
      }
    },
    enabled,
    staleTime: 30_000,
    retry: false,
  });
}

export function parseMcpTool(item: Record<string, unknown>): McpTool {
  const text = (value: unknown) => (typeof value === "string" ? value : "");
  const annotations = isRecord(item.annotations) ? item.annotations : {};
  return {
    name: text(item.name),
    title: text(item.title) || text(annotations.title),
    description: text(item.description),
    inputSchema: isRecord(item.inputSchema) ? item.inputSchema : {},
    outputSchema: item.outputSchema,
    annotations,
  };
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Call a tool and report its progress. Aborting the signal cancels the call. */
export async function callMcpTool(
  server: string,
  body: Schema<"McpCallRequest">,
  sandbox: string,
  signal: AbortSignal,
  onProgress: (progress: McpProgress) => void,
): Promise<Schema<"McpCallResponse">> {
  const response = await fetchRaw("POST", `${serverPath(server)}/call`, {
    body,
    query: { sandbox },
    headers: { Accept: "text/event-stream" },
    signal,
  });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let piece = await reader?.read(); piece && !piece.done; piece = await reader?.read()) {
    rest += piece.value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const event = parseServerSentEvent(rest.slice(0, end));
      rest = rest.slice(end + 2);
      if (!event) continue;
      const data = JSON.parse(event.data);
      if (event.event === "progress") onProgress(data as McpProgress);
      else if (event.event === "error") throw new ApiError(409, String(data.code).toUpperCase(), String(data.message));
      else return data as Schema<"McpCallResponse">;
    }
  }
  throw new ApiError(0, "UNREACHABLE", "The connection was lost.");
}

/** Sandboxes in which programs of servers can run. */
export function useRunningSandboxes(enabled: boolean) {
  return useQuery({
    queryKey: ["mcp", "sandboxes"],
    queryFn: ({ signal }) =>
      api.get<Schema<"SandboxListResponse">>("/v1/sandboxes", { query: { state: "Running", pageSize: 50 }, signal }),
    enabled,
  });
}
