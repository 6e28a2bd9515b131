/** Whether the server is reachable. While offline it is polled; afterwards everything is refetched. */

import type { QueryClient } from "@tanstack/react-query";
import { create } from "zustand";
import { ApiError, api } from "@/api/client";

interface ConnectionState {
  isOffline: boolean;
  /** Incremented when the server is back or the user signs in again; followers reconnect. */
  resumed: number;
}

export const useServerConnection = create<ConnectionState>(() => ({ isOffline: false, resumed: 0 }));

const RETRY_MS = 2_000;
let listener: (error: unknown) => void = () => {};

/** Report a failed request made outside of queries. */
export function reportRequestFailure(error: unknown): void {
  listener(error);
}

/** Whether an error means offline: no connection, or a gateway error. */
export function isOfflineError(error: unknown): boolean {
  if (!(error instanceof ApiError)) return false;
  return error.unreachable || (error.status >= 502 && error.status <= 504 && error.code.startsWith("HTTP_"));
}

/** Refetch everything on the page. */
export function refetchAllQueries(queries: QueryClient): void {
  useServerConnection.setState(({ resumed }) => ({ isOffline: false, resumed: resumed + 1 }));
  void queries.invalidateQueries();
}

/** Watch query results. Returns the function that stops it. */
export function watchServerConnection(queries: QueryClient): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;

  const poll = async () => {
    if (stopped) return;
    if (document.visibilityState === "hidden") {
      timer = setTimeout(() => void poll(), RETRY_MS);
      return;
    }
    try {
      await api.get("/v1/me");
    } catch (error) {
      if (isOfflineError(error)) {
        timer = setTimeout(() => void poll(), RETRY_MS);
        return;
      }
    }
    if (!stopped) refetchAllQueries(queries);
  };

  const checkError = (error: unknown) => {
    if (stopped || useServerConnection.getState().isOffline || !isOfflineError(error)) return;
    useServerConnection.setState({ isOffline: true });
    timer = setTimeout(() => void poll(), RETRY_MS);
  };

  listener = checkError;
  const unsubscribers = [
    queries.getQueryCache().subscribe((event) => {
      if (event.type !== "updated") return;
      if (event.action.type === "error" || event.action.type === "failed") checkError(event.action.error);
    }),
    queries.getMutationCache().subscribe((event) => {
      if (event.type === "updated" && event.action.type === "error") checkError(event.action.error);
    }),
  ];
  return () => {
    stopped = true;
    if (listener === checkError) listener = () => {};
    clearTimeout(timer);
    for (const unsubscribe of unsubscribers) unsubscribe();
  };
}
