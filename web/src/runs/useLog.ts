/** What a run's entrypoint wrote, as it writes it. */

import { useEffect, useState } from "react";
import { ApiError, fetchRaw } from "@/api/client";
import { sleep } from "@/api/streams";
import { plain } from "@/ui/terminal";

/** Letters that are kept to be shown: the last ones. */
const MOST = 200_000;
const PAUSE = 2_000;

export interface Log {
  text: string;
  /** Whether its beginning is left out. */
  cut: boolean;
  /** Whether nothing more will come. */
  whole: boolean;
  error: unknown;
}

const NONE: Log = { text: "", cut: false, whole: false, error: null };

export function useLog(run: string, name: "agent.out" | "agent.err", attempt: number): Log {
  const [log, setLog] = useState<Log>(NONE);
  useEffect(() => {
    const stop = new AbortController();
    setLog(NONE);
    void read(run, name, attempt, stop.signal, (more) => setLog((now) => ({ ...now, ...more(now) })));
    return () => stop.abort();
  }, [run, name, attempt]);
  return log;
}

type Change = (more: (now: Log) => Partial<Log>) => void;

async function read(run: string, name: string, attempt: number, signal: AbortSignal, change: Change): Promise<void> {
  let seen = 0;
  while (!signal.aborted) {
    try {
      const query = { follow: true, after: seen, attempt };
      const response = await fetchRaw("GET", `/v1/runs/${encodeURIComponent(run)}/logs/${name}`, { query, signal });
      const reader = response.body?.getReader();
      const decoder = new TextDecoder();
      for (;;) {
        const piece = await reader?.read();
        if (!piece || piece.done) break;
        seen += piece.value.length;
        const more = plain(decoder.decode(piece.value, { stream: true }));
        change((now) => ({
          text: (now.text + more).slice(-MOST),
          cut: now.cut || now.text.length + more.length > MOST,
          error: null,
        }));
      }
      change(() => ({ whole: true }));
      return;
    } catch (error) {
      if (signal.aborted) return;
      change(() => ({ error }));
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) return;
    }
    await sleep(PAUSE, signal);
  }
}
