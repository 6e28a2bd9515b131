/** Follows the output of a run's entrypoint. */

import { useEffect, useState } from "react";
import { ApiError, fetchRaw } from "@/api/client";
import { sleep } from "@/api/event-stream";
import { stripControlSequences } from "@/ui/content/terminal-text";

/** Maximum characters kept for display; the newest ones. */
const MAX_CHARACTERS = 200_000;
const RETRY_MS = 2_000;

export interface RunLog {
  text: string;
  /** Whether the beginning was dropped. */
  cut: boolean;
  /** Whether the log is complete. */
  isComplete: boolean;
  error: unknown;
}

const EMPTY_LOG: RunLog = { text: "", cut: false, isComplete: false, error: null };

export function useRunLog(run: string, name: "agent.out" | "agent.err", attempt: number): RunLog {
  const [log, setLog] = useState<RunLog>(EMPTY_LOG);
  useEffect(() => {
    const stop = new AbortController();
    setLog(EMPTY_LOG);
    void streamLog(run, name, attempt, stop.signal, (more) => setLog((current) => ({ ...current, ...more(current) })));
    return () => stop.abort();
  }, [run, name, attempt]);
  return log;
}

type LogUpdate = (more: (current: RunLog) => Partial<RunLog>) => void;

async function streamLog(
  run: string,
  name: string,
  attempt: number,
  signal: AbortSignal,
  change: LogUpdate,
): Promise<void> {
  let offset = 0;
  while (!signal.aborted) {
    try {
      const query = { follow: true, after: offset, attempt };
      const response = await fetchRaw("GET", `/v1/runs/${encodeURIComponent(run)}/logs/${name}`, { query, signal });
      const reader = response.body?.getReader();
      const decoder = new TextDecoder();
      for (;;) {
        const piece = await reader?.read();
        if (!piece || piece.done) break;
        offset += piece.value.length;
        const more = stripControlSequences(decoder.decode(piece.value, { stream: true }));
        change((current) => ({
          text: (current.text + more).slice(-MAX_CHARACTERS),
          cut: current.cut || current.text.length + more.length > MAX_CHARACTERS,
          error: null,
        }));
      }
      change(() => ({ isComplete: true }));
      return;
    } catch (error) {
      if (signal.aborted) return;
      change(() => ({ error }));
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) return;
    }
    await sleep(RETRY_MS, signal);
  }
}
