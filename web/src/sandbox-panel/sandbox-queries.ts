/** Queries about one sandbox. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { ApiError, api } from "@/api/client";
import type { Schema } from "@/api/types";
import type { SandboxView } from "@/session/types";

export type Sandbox = Schema<"SandboxResponse">;

export function sandboxApiPath(id: string): string {
  return `/v1/sandboxes/${encodeURIComponent(id)}`;
}

export function sandboxKind(sandbox: Sandbox): string {
  return sandbox.extensions?.["paddock.kind"] ?? "";
}

/** A sandbox without a session, as `SandboxPanel` shows it. */
export function sandboxViewFromResponse(sandbox: Sandbox): SandboxView {
  const { state, message, reason } = sandbox.status;
  return {
    id: sandbox.id,
    kind: sandboxKind(sandbox),
    state: sandboxViewState(state),
    reason: message ?? reason ?? null,
    building: null,
    desktop: "none",
    holder: null,
    terminals: [],
    files: [],
    screen: 0,
  };
}

function sandboxViewState(state: Sandbox["status"]["state"]): SandboxView["state"] {
  if (state === "Failed") return "broken";
  if (state === "Terminated" || state === "Stopping") return "released";
  return state === "Pending" ? "starting" : "ready";
}

/** State of a sandbox, polled while the page is visible. */
export function useSandbox(id: string, active = true) {
  return useQuery({
    queryKey: ["sandboxPanel", id, "sandbox"],
    queryFn: ({ signal }) => api.get<Sandbox>(sandboxApiPath(id), { signal }),
    refetchInterval: active ? 5_000 : false,
    enabled: active,
  });
}

export function useSandboxKinds() {
  return useQuery({
    queryKey: ["sandboxPanel", "kinds"],
    queryFn: async ({ signal }) => (await api.get<Schema<"KindListResponse">>("/v1/kinds", { signal })).items,
    staleTime: 300_000,
  });
}

export interface SandboxCondition {
  state: "starting" | "ready" | "paused" | "broken" | "gone";
  reason: string | null;
}

/** Condition from the session's view and the server's: if either has ended, so has the sandbox. */
export function sandboxCondition(view: SandboxView, sandbox: Sandbox | undefined, error: unknown): SandboxCondition {
  if (view.state === "broken") return { state: "broken", reason: view.reason };
  if (view.state === "released") return { state: "gone", reason: view.reason };
  if (error instanceof ApiError && error.status === 404) return { state: "gone", reason: null };
  if (!sandbox) return { state: view.state, reason: null };
  const serverView = sandboxViewFromResponse(sandbox);
  if (serverView.state === "broken") return { state: "broken", reason: serverView.reason };
  if (serverView.state === "released") return { state: "gone", reason: serverView.reason };
  if (sandbox.status.state === "Paused" || sandbox.status.state === "Pausing") return { state: "paused", reason: null };
  return { state: serverView.state, reason: null };
}

export function useSandboxCondition(sandbox: SandboxView, active: boolean): SandboxCondition {
  // A starting sandbox has no id yet.
  const query = useSandbox(sandbox.id, active && sandbox.state !== "released" && sandbox.state !== "starting");
  return sandboxCondition(sandbox, query.data, query.error);
}

/** Refetch when the session reports a change. */
export function useRefreshOnChange(sandbox: SandboxView): void {
  const queries = useQueryClient();
  const changeKey = `${sandbox.state} ${sandbox.desktop} ${sandbox.holder} ${sandbox.terminals.join()}`;
  useEffect(() => {
    if (changeKey) void queries.invalidateQueries({ queryKey: ["sandboxPanel", sandbox.id] });
  }, [queries, sandbox.id, changeKey]);
}
