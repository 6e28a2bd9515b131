/** Sessions that are being followed, one store for each. */

import type { LinkState } from "@/api/streams";
import type { SessionView } from "./types";

export interface SessionLink {
  view: SessionView;
  link: LinkState;
  /** Why there is nothing to follow: it is unknown, or somebody else's. */
  error: unknown;
  /** Whether all events that there were at the beginning have come. */
  caughtUp: boolean;
}

/** Follow a session while a component shows it; several share one connection. */
export declare function useSession<T>(id: string, select: (link: SessionLink) => T): T;
