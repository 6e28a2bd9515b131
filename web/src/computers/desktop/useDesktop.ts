/** The connection to a desktop as a component uses it. */

import { useQuery } from "@tanstack/react-query";
import { type RefObject, useCallback, useEffect, useRef, useState } from "react";
import { ApiError, api } from "@/api/client";
import type { Schema } from "@/api/types";
import { sandboxPath } from "../box";
import { DesktopLink, type DesktopState, type Look } from "./link";

export interface Desktop {
  state: DesktopState;
  link: RefObject<DesktopLink | null>;
  /** What was copied in the box last, and when; not put anywhere by itself. */
  copied: { text: string; at: number } | null;
  /** The screen as it was when the connection was lost; an address with the picture in it. */
  last: string | null;
}

/** Connected while `wanted`; shown as `look` says. */
export function useDesktop(
  target: RefObject<HTMLElement | null>,
  sandbox: string,
  wanted: boolean,
  look: Look,
  /** Grows to connect anew, after the connection was over. */
  again: number,
  onChange: () => void,
): Desktop {
  const [state, setState] = useState<DesktopState>({ name: "connecting", attempt: 0 });
  const [copied, setCopied] = useState<Desktop["copied"]>(null);
  const [last, setLast] = useState<string | null>(null);
  const link = useRef<DesktopLink | null>(null);
  const told = useRef(onChange);
  told.current = onChange;
  const { control, size } = look;
  // biome-ignore lint/correctness/useExhaustiveDependencies: `again` is there to connect anew.
  useEffect(() => {
    const place = target.current;
    if (!wanted || !place) return;
    setState({ name: "connecting", attempt: 0 });
    const opened = new DesktopLink(place, sandbox, {
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

/** Whether the desktop of a box runs, and starting it. */
export function useDisplay(sandbox: string, active: boolean) {
  const path = `${sandboxPath(sandbox)}/desktop`;
  const query = useQuery({
    queryKey: ["computers", sandbox, "desktop"],
    queryFn: ({ signal }) => api.get<Schema<"DesktopSaid">>(path, { signal }),
    enabled: active,
    refetchInterval: (state) => (active && !state.state.data?.up ? 3_000 : false),
  });
  const [starting, setStarting] = useState(false);
  const { refetch } = query;
  const start = useCallback(async () => {
    setStarting(true);
    try {
      await api.post<Schema<"DesktopSaid">>(path);
    } finally {
      setStarting(false);
      void refetch();
    }
  }, [path, refetch]);
  return { query, start, starting };
}

/** The last picture of a screen, to look at until it is live. An address of the browser's own, or null. */
export function useShot(sandbox: string, wanted: boolean): string | null {
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
        // Without a picture the place stays empty; the connection itself says what is wrong.
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
