/** Desktop connection for a component. */

import { useQuery } from "@tanstack/react-query";
import { type RefObject, useCallback, useEffect, useRef, useState } from "react";
import { ApiError, api } from "@/api/client";
import type { Schema } from "@/api/types";
import { sandboxApiPath } from "../sandbox-queries";
import { DesktopConnection, type DesktopOptions, type DesktopState } from "./desktop-connection";

export interface DesktopHandle {
  state: DesktopState;
  connection: RefObject<DesktopConnection | null>;
  /** Text last copied in the sandbox, and when; it is not put on the local clipboard. */
  copied: { text: string; at: number } | null;
  /** Data URL of the screen when the connection was lost. */
  last: string | null;
}

/** Connect while `enabled`, with the given options. */
export function useDesktop(
  target: RefObject<HTMLElement | null>,
  sandbox: string,
  enabled: boolean,
  options: DesktopOptions,
  /** Incremented to reconnect after the connection ended. */
  restartCount: number,
  onChange: () => void,
): DesktopHandle {
  const [state, setState] = useState<DesktopState>({ name: "connecting", attempt: 0 });
  const [copied, setCopied] = useState<DesktopHandle["copied"]>(null);
  const [last, setLast] = useState<string | null>(null);
  const connection = useRef<DesktopConnection | null>(null);
  const onChangeRef = useRef(onChange);
  onChangeRef.current = onChange;
  const { control, size } = options;
  // biome-ignore lint/correctness/useExhaustiveDependencies: `restartCount` triggers a reconnect.
  useEffect(() => {
    const element = target.current;
    if (!enabled || !element) return;
    setState({ name: "connecting", attempt: 0 });
    const opened = new DesktopConnection(element, sandbox, {
      onState: (next) => {
        setState(next);
        onChangeRef.current();
      },
      onClipboard: (text) => setCopied({ text, at: Date.now() }),
      onLast: (picture) => setLast(picture || null),
    });
    connection.current = opened;
    const reconnect = () => opened.reconnect();
    window.addEventListener("online", reconnect);
    return () => {
      window.removeEventListener("online", reconnect);
      connection.current = null;
      opened.close();
    };
  }, [target, sandbox, enabled, restartCount]);
  useEffect(() => {
    if (enabled) connection.current?.setOptions({ control, size });
  }, [enabled, control, size]);
  return { state, connection, copied, last };
}

/** Whether the sandbox's desktop is running, and a function to start it. */
export function useDisplayStatus(sandbox: string, active: boolean) {
  const path = `${sandboxApiPath(sandbox)}/desktop`;
  const query = useQuery({
    queryKey: ["sandboxPanel", sandbox, "desktop"],
    queryFn: ({ signal }) => api.get<Schema<"DesktopResponse">>(path, { signal }),
    enabled: active,
    refetchInterval: (state) => (active && !state.state.data?.up ? 3_000 : false),
  });
  const [starting, setStarting] = useState(false);
  const { refetch } = query;
  const start = useCallback(async () => {
    setStarting(true);
    try {
      await api.post<Schema<"DesktopResponse">>(path);
    } finally {
      setStarting(false);
      void refetch();
    }
  }, [path, refetch]);
  return { query, start, starting };
}

/** Object URL of the last screenshot, shown until the screen is live; or null. */
export function useLastScreenshot(sandbox: string, enabled: boolean): string | null {
  const [source, setSource] = useState<string | null>(null);
  useEffect(() => {
    if (!enabled) return;
    const stop = new AbortController();
    let url: string | null = null;
    api
      .blob(`${sandboxApiPath(sandbox)}/screenshot`, { query: { format: "jpeg", quality: 70 }, signal: stop.signal })
      .then((picture) => {
        url = URL.createObjectURL(picture);
        setSource(url);
      })
      .catch((error: unknown) => {
        // Without a screenshot the area stays empty; the connection itself reports errors.
        if (!(error instanceof ApiError) && !stop.signal.aborted) console.warn(error);
      });
    return () => {
      stop.abort();
      if (url) URL.revokeObjectURL(url);
      setSource(null);
    };
  }, [sandbox, enabled]);
  return source;
}
