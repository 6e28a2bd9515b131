/** Desktop connection for a component. */

import { useQuery } from "@tanstack/react-query";
import { type RefObject, useCallback, useEffect, useRef, useState } from "react";
import { ApiError, api } from "@/api/client";
import type { Schema } from "@/api/types";
import { sandboxPath } from "../sandbox-queries";
import { DesktopConnection, type DesktopOptions, type DesktopState } from "./desktop-connection";

export interface DesktopHandle {
  state: DesktopState;
  link: RefObject<DesktopConnection | null>;
  /** Text last copied in the sandbox, and when; it is not put on the local clipboard. */
  copied: { text: string; at: number } | null;
  /** Data URL of the screen when the connection was lost. */
  last: string | null;
}

/** Connect while `wanted`, with the given options. */
export function useDesktop(
  target: RefObject<HTMLElement | null>,
  sandbox: string,
  wanted: boolean,
  look: DesktopOptions,
  /** Incremented to reconnect after the connection ended. */
  again: number,
  onChange: () => void,
): DesktopHandle {
  const [state, setState] = useState<DesktopState>({ name: "connecting", attempt: 0 });
  const [copied, setCopied] = useState<DesktopHandle["copied"]>(null);
  const [last, setLast] = useState<string | null>(null);
  const link = useRef<DesktopConnection | null>(null);
  const told = useRef(onChange);
  told.current = onChange;
  const { control, size } = look;
  // biome-ignore lint/correctness/useExhaustiveDependencies: `again` triggers a reconnect.
  useEffect(() => {
    const place = target.current;
    if (!wanted || !place) return;
    setState({ name: "connecting", attempt: 0 });
    const opened = new DesktopConnection(place, sandbox, {
      onState: (next) => {
        setState(next);
        told.current();
      },
      onClipboard: (text) => setCopied({ text, at: Date.now() }),
      onLast: (picture) => setLast(picture || null),
    });
    link.current = opened;
    const hurry = () => opened.renew();
    window.addEventListener("online", hurry);
    return () => {
      window.removeEventListener("online", hurry);
      link.current = null;
      opened.close();
    };
  }, [target, sandbox, wanted, again]);
  useEffect(() => {
    if (wanted) link.current?.show({ control, size });
  }, [wanted, control, size]);
  return { state, link, copied, last };
}

/** Whether the sandbox's desktop is running, and a function to start it. */
export function useDisplayStatus(sandbox: string, active: boolean) {
  const path = `${sandboxPath(sandbox)}/desktop`;
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
export function useLastScreenshot(sandbox: string, wanted: boolean): string | null {
  const [source, setSource] = useState<string | null>(null);
  useEffect(() => {
    if (!wanted) return;
    const stop = new AbortController();
    let made: string | null = null;
    api
      .blob(`${sandboxPath(sandbox)}/screenshot`, { query: { format: "jpeg", quality: 70 }, signal: stop.signal })
      .then((picture) => {
        made = URL.createObjectURL(picture);
        setSource(made);
      })
      .catch((error: unknown) => {
        // Without a screenshot the area stays empty; the connection itself reports errors.
        if (!(error instanceof ApiError) && !stop.signal.aborted) console.warn(error);
      });
    return () => {
      stop.abort();
      if (made) URL.revokeObjectURL(made);
      setSource(null);
    };
  }, [sandbox, wanted]);
  return source;
}
