/** Whether the server answers. While it does not, it is asked until it does, and then everything is asked anew. */

import type { QueryClient } from "@tanstack/react-query";
import { create } from "zustand";
import { ApiError, api } from "@/api/client";

interface Connection {
  away: boolean;
  /** Grows whenever the server answers again, or somebody signs in again: what follows something may begin anew. */
  resumed: number;
}

export const useConnection = create<Connection>(() => ({ away: false, resumed: 0 }));

const PAUSE = 2_000;
let listener: (error: unknown) => void = () => {};

/** What was asked for outside of queries has failed. */
export function tellFailure(error: unknown): void {
  listener(error);
}

/** Whether an error means that nobody is there: no connection, or something before the server says so. */
export function meansAway(error: unknown): boolean {
  if (!(error instanceof ApiError)) return false;
  return error.unreachable || (error.status >= 502 && error.status <= 504 && error.code.startsWith("HTTP_"));
}

/** Everything may have changed: ask again for what is shown. */
export function resume(queries: QueryClient): void {
  useConnection.setState(({ resumed }) => ({ away: false, resumed: resumed + 1 }));
  void queries.invalidateQueries();
}

/** Watch what comes of requests. Gives a function that stops it. */
export function watchConnection(queries: QueryClient): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;

  const ask = async () => {
    if (stopped) return;
    if (document.visibilityState === "hidden") {
      timer = setTimeout(() => void ask(), PAUSE);
      return;
    }
    try {
      await api.get("/v1/me");
    } catch (error) {
      if (meansAway(error)) {
        timer = setTimeout(() => void ask(), PAUSE);
        return;
      }
    }
    if (!stopped) resume(queries);
  };

  const heard = (error: unknown) => {
    if (stopped || useConnection.getState().away || !meansAway(error)) return;
    useConnection.setState({ away: true });
    timer = setTimeout(() => void ask(), PAUSE);
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
