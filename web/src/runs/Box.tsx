import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Computers, type View } from "@/computers/Computers";
import type { BoxView } from "@/session/types";
import { useServer } from "@/shell/server";
import styles from "./run.module.css";

/** The sandbox of a run, while it is there. */
export function useBox(sandbox: string | null, over: boolean): BoxView | null {
  const server = useServer();
  const query = useQuery({
    queryKey: ["runs", "sandbox", sandbox],
    queryFn: ({ signal }) => api.get<Schema<"SandboxSaid">>(`/v1/sandboxes/${sandbox}`, { signal }),
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

export function Box({ box }: { box: BoxView }) {
  const [view, setView] = useState<View>(box.desktop === "started" ? "desktop" : "files");
  return (
    <div className={styles.computer}>
      <Computers boxes={[box]} chosen={{ sandbox: box.id, view }} onChoose={(_, next) => setView(next)} />
    </div>
  );
}
