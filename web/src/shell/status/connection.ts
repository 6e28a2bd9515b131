/** Whether the server is reachable. While offline it is polled; afterwards everything is refetched. */

import type { QueryClient } from "@tanstack/react-query";
import { create } from "zustand";
import { ApiError, api } from "@/api/client";

interface ConnectionState {
  away: boolean;
  /** Incremented when the server is back or the user signs in again; followers reconnect. */
  resumed: number;
}

export const useConnection = create<ConnectionState>(() => ({ away: false, resumed: 0 }));

const RETRY_MS = 2_000;
let listener: (error: unknown) => void = () => {};

/** Report a failed request made outside of queries. */
export function reportFailure(error: unknown): void {
  listener(error);
}

/** Whether an error means offline: no connection, or a gateway error. */
export function isOfflineError(error: unknown): boolean {
  if (!(error instanceof ApiError)) return false;
  return error.unreachable || (error.status >= 502 && error.status <= 504 && error.code.startsWith("HTTP_"));
}

/** Refetch everything on the page. */
export function refetchAll(queries: QueryClient): void {
  useConnection.setState(({ resumed }) => ({ away: false, resumed: resumed + 1 }));
  void queries.invalidateQueries();
}

/** Watch query results. Returns the function that stops it. */
export function watchConnection(queries: QueryClient): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;

  const ask = async () => {
    if (stopped) return;
    if (document.visibilityState === "hidden") {
      timer = setTimeout(() => void ask(), RETRY_MS);
      return;
    }
    try {
      await api.get("/v1/me");
    } catch (error) {
      if (isOfflineError(error)) {
        timer = setTimeout(() => void ask(), RETRY_MS);
        return;
      }
    }
    if (!stopped) refetchAll(queries);
  };

  const heard = (error: unknown) => {
    if (stopped || useConnection.getState().away || !isOfflineError(error)) return;
    useConnection.setState({ away: true });
    timer = setTimeout(() => void ask(), RETRY_MS);
  };

  listener = heard;
  const ends = [
    queries.getQueryCache().subscribe((event) => {
      if (event.type !== "updated") return;
      if (event.action.type === "error" || event.action.type === "failed") heard(event.action.error);
    }),
    queries.getMutationCache().subscribe((event) => {
      if (event.type === "updated" && event.action.type === "error") heard(event.action.error);
    }),
  ];
  return () => {
    stopped = true;
    if (listener === heard) listener = () => {};
    clearTimeout(timer);
    for (const end of ends) end();
  };
}
