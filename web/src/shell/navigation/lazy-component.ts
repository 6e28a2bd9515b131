/** Components that are loaded on first use. */

import { type ComponentType, lazy } from "react";
import { fetchRaw } from "@/api/client";
import { sleep } from "@/api/event-stream";
import { isOfflineError, reportRequestFailure } from "../status/server-connection";

const RETRY_MS = 2_000;

/** Lazy component that waits while the server is offline. */
export function lazyComponent<Props>(load: () => Promise<{ default: ComponentType<Props> }>) {
  return lazy(() => loadWhenOnline(load));
}

export async function loadWhenOnline<T>(load: () => Promise<T>, pause = RETRY_MS): Promise<T> {
  for (;;) {
    try {
      return await load();
    } catch (error) {
      // The server is online but lacks the file: it is another version than this page's.
      if (!(await isServerOffline())) throw error;
      await sleep(pause);
    }
  }
}

async function isServerOffline(): Promise<boolean> {
  try {
    await fetchRaw("GET", "/readyz");
    return false;
  } catch (error) {
    reportRequestFailure(error);
    return isOfflineError(error);
  }
}
