/** What is asked of the server about one computer. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { ApiError, api } from "@/api/client";
import type { Schema } from "@/api/types";
import type { BoxView } from "@/session/types";

export type Sandbox = Schema<"SandboxSaid">;

export function sandboxPath(id: string): string {
  return `/v1/sandboxes/${encodeURIComponent(id)}`;
}

export function kindOf(sandbox: Sandbox): string {
  return sandbox.extensions?.["paddock.kind"] ?? "";
}

/** A sandbox that belongs to no session, as `Computers` shows it. */
export function boxOf(sandbox: Sandbox): BoxView {
  const { state, message, reason } = sandbox.status;
  return {
    id: sandbox.id,
    kind: kindOf(sandbox),
    state: life(state),
    reason: message ?? reason ?? null,
    building: null,
    desktop: "none",
    holder: null,
    terminals: [],
    files: [],
    screen: 0,
  };
}

function life(state: Sandbox["status"]["state"]): BoxView["state"] {
  if (state === "Failed") return "broken";
  if (state === "Terminated" || state === "Stopping") return "released";
  return state === "Pending" ? "starting" : "ready";
}

/** How a computer is. It is looked at every few seconds while the page is seen. */
export function useSandbox(id: string, active = true) {
  return useQuery({
    queryKey: ["computers", id, "sandbox"],
    queryFn: ({ signal }) => api.get<Sandbox>(sandboxPath(id), { signal }),
    refetchInterval: active ? 5_000 : false,
    enabled: active,
  });
}

export function useKinds() {
  return useQuery({
    queryKey: ["computers", "kinds"],
    queryFn: async ({ signal }) => (await api.get<Schema<"KindList">>("/v1/kinds", { signal })).items,
    staleTime: 300_000,
  });
}

export interface Condition {
  state: "starting" | "ready" | "paused" | "broken" | "gone";
  reason: string | null;
}

/** How a box is, by what the session says and by what the server does: whichever knows of its end is right. */
export function condition(box: BoxView, sandbox: Sandbox | undefined, error: unknown): Condition {
  if (box.state === "broken") return { state: "broken", reason: box.reason };
  if (box.state === "released") return { state: "gone", reason: box.reason };
  if (error instanceof ApiError && error.status === 404) return { state: "gone", reason: null };
  if (!sandbox) return { state: box.state, reason: null };
  const seen = boxOf(sandbox);
  if (seen.state === "broken") return { state: "broken", reason: seen.reason };
  if (seen.state === "released") return { state: "gone", reason: seen.reason };
  if (sandbox.status.state === "Paused" || sandbox.status.state === "Pausing") return { state: "paused", reason: null };
  return { state: seen.state, reason: null };
}

export function useCondition(box: BoxView, active: boolean): Condition {
  // What is only starting has no id of its own yet.
  const query = useSandbox(box.id, active && box.state !== "released" && box.state !== "starting");
  return condition(box, query.data, query.error);
}

/** Ask again at once for what a session has told us is different now. */
export function useNews(box: BoxView): void {
  const queries = useQueryClient();
  const news = `${box.state} ${box.desktop} ${box.holder} ${box.terminals.join()}`;
  useEffect(() => {
    if (news) void queries.invalidateQueries({ queryKey: ["computers", box.id] });
  }, [queries, box.id, news]);
}
