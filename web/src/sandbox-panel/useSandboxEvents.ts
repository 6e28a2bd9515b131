/** Events of a sandbox, page by page and then every few seconds. */

import { useQuery } from "@tanstack/react-query";
import { useRef } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { sandboxApiPath } from "./sandbox-queries";

export type SandboxEvent = Schema<"EventResponse">;

const PAGE_SIZE = 500;
/** Pages per poll; a sandbox with more is caught up in the next polls. */
const MAX_PAGES = 8;
/** Limit of kept events; older ones are dropped. */
const MAX_EVENTS = 2000;

/** Events of the given types, oldest first. */
export function useSandboxEvents(sandbox: string, types: readonly string[], active: boolean) {
  const read = useRef<{ sandbox: string; next: number; events: SandboxEvent[] }>({ sandbox, next: 0, events: [] });
  if (read.current.sandbox !== sandbox) read.current = { sandbox, next: 0, events: [] };
  return useQuery({
    queryKey: ["sandboxPanel", sandbox, "events"],
    queryFn: async ({ signal }) => {
      const cursor = read.current;
      for (let page = 0; page < MAX_PAGES; page += 1) {
        const found = await api.get<Schema<"EventPageResponse">>(`${sandboxApiPath(sandbox)}/events`, {
          query: { after: cursor.next, limit: PAGE_SIZE },
          headers: { Accept: "application/json" },
          signal,
        });
        cursor.next = found.next;
        cursor.events = [...cursor.events, ...found.items.filter((event) => types.includes(event.type))].slice(
          -MAX_EVENTS,
        );
        if (found.items.length < PAGE_SIZE) break;
      }
      return cursor.events;
    },
    enabled: active,
    refetchInterval: active ? 4_000 : false,
  });
}
