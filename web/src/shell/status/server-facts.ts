/** Facts about the server. */

import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";

export interface AgentFacts {
  name: string;
  type: "engine" | "program";
  ready: boolean;
  /** Missing requirement, if the agent is not ready. */
  missing?: string;
  image?: string;
  built?: boolean;
  description?: string;
}

export interface ModelFacts {
  name: string;
  provider: string;
  kind: string;
  /** A script answers instead of a model. */
  script: boolean;
}

export interface ServerFacts {
  name: string;
  version: string;
  startedAt: string;
  now: string;
  backends: string[];
  agents: { default: string; chat: AgentFacts[]; tasks: AgentFacts[] };
  models: {
    items: ModelFacts[];
    patterns: string[];
    default?: string;
    real: boolean;
    demo: boolean;
    state: "ready" | "key_refused" | "not_reached";
    /** Providers that refused their key, with the variable or setting that holds it. */
    refusedKeys: Record<string, string>;
  };
  kinds: Schema<"KindResponse">[];
  defaultKinds: string[];
  defaultImage: string;
  /** Lifetime in seconds of sandboxes that name none; missing if it is unlimited. */
  defaultTimeout?: number;
  disk: { free: number; total: number; needed: number };
  /** Number of sandboxes by state. */
  sandboxes: Partial<Record<Schema<"SandboxState">, number>>;
  tenant: string;
}

export function useServerFacts(pollMs?: number) {
  return useQuery({
    queryKey: ["server"],
    queryFn: ({ signal }) => api.get<ServerFacts>("/v1/server", { signal }),
    refetchInterval: pollMs,
  });
}
