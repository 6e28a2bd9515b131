import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { agentCommandsOfRun } from "@/runs/agent-commands-of-run";
import type { RunDetail } from "@/runs/api";
import { useRunFeed } from "@/runs/useRunFeed";
import type { AgentCommandSource } from "@/sandbox-panel/terminal/agent-commands";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { type Sandbox, sandboxOwner } from "./sandbox-properties";

export interface SandboxAgent {
  /** The agent of the sandbox's chat or run; undefined if there is none that the viewer may read. */
  agent?: AgentCommandSource;
  /** Whether it is not known yet. */
  pending: boolean;
}

/** The agent that works in a sandbox: that of its chat or its run. */
export function useSandboxAgent(sandbox: Sandbox | undefined): SandboxAgent {
  const me = useCurrentUser().data;
  const owner = sandbox ? sandboxOwner(sandbox) : null;
  const chat = owner?.type === "chat" ? owner.id : null;
  const run = owner?.type === "run" ? owner.id : null;
  const session = useQuery({
    queryKey: ["sandboxes", "chat", chat],
    queryFn: ({ signal }) => api.get<Schema<"Session">>(`/v1/sessions/${encodeURIComponent(chat ?? "")}`, { signal }),
    enabled: chat !== null && hasScope(me, "sessions:read"),
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });
  const detail = useQuery({
    queryKey: ["sandboxes", "run", run],
    queryFn: ({ signal }) => api.get<RunDetail>(`/v1/runs/${encodeURIComponent(run ?? "")}`, { signal }),
    enabled: run !== null && hasScope(me, "runs:read"),
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });
  const { feed } = useRunFeed(detail.data?.id ?? null);
  const readable = session.data?.id;
  const task = detail.data?.task;
  const agent = useMemo((): AgentCommandSource | undefined => {
    if (readable) return { session: readable };
    return task && { commands: agentCommandsOfRun(feed, task) };
  }, [readable, task, feed]);
  return { agent, pending: session.isLoading || detail.isLoading };
}
