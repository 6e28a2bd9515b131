import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { SandboxPanel, type View } from "@/sandbox-panel/SandboxPanel";
import type { SandboxView } from "@/session/types";
import { useServerFacts } from "@/shell/status/server-facts";
import { agentCommandsOfRun } from "./agent-commands-of-run";
import type { RunDetail } from "./api";
import styles from "./run.module.css";
import type { RunFeed } from "./run-feed";

/** The sandbox of a run while it exists. */
export function useRunSandbox(sandbox: string | null, over: boolean): SandboxView | null {
  const server = useServerFacts();
  const query = useQuery({
    queryKey: ["runs", "sandbox", sandbox],
    queryFn: ({ signal }) => api.get<Schema<"SandboxResponse">>(`/v1/sandboxes/${sandbox}`, { signal }),
    enabled: sandbox !== null && !over,
    refetchInterval: 5_000,
    retry: false,
  });
  const found = query.data;
  if (!found || over || query.error || found.status.state !== "Running") return null;
  const kind = found.extensions?.["paddock.kind"] ?? "code";
  const screen = server.data?.kinds.find((each) => each.name === kind)?.screen ?? false;
  return {
    id: found.id,
    kind,
    state: "ready",
    reason: null,
    building: null,
    desktop: screen ? "started" : "none",
    holder: null,
    terminals: [],
    files: [],
    screen: 0,
  };
}

export function RunSandbox({ sandbox, run, feed }: { sandbox: SandboxView; run: RunDetail; feed: RunFeed }) {
  const agent = useMemo(() => ({ commands: agentCommandsOfRun(feed, run.task) }), [feed, run.task]);
  const [view, setView] = useState<View>(sandbox.desktop === "started" ? "desktop" : "files");
  return (
    <div className={styles.computer}>
      <SandboxPanel
        sandboxes={[sandbox]}
        chosen={{ sandbox: sandbox.id, view }}
        onChoose={(_, next) => setView(next)}
        agent={agent}
      />
    </div>
  );
}
