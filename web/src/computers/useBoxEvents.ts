/** What a box has told of itself, page by page and then every few seconds. */

import { useQuery } from "@tanstack/react-query";
import { useRef } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { sandboxPath } from "./box";

export type EventSaid = Schema<"EventSaid">;

const PAGE = 500;
/** Pages of one look; a box that has told more is caught up with in the next ones. */
const MOST_PAGES = 8;
/** Older ones are forgotten. */
const MOST_KEPT = 2000;

/** Events of the types that are wanted, the oldest first. */
export function useBoxEvents(sandbox: string, types: readonly string[], active: boolean) {
  const read = useRef<{ sandbox: string; next: number; events: EventSaid[] }>({ sandbox, next: 0, events: [] });
  if (read.current.sandbox !== sandbox) read.current = { sandbox, next: 0, events: [] };
  return useQuery({
    queryKey: ["computers", sandbox, "events"],
    queryFn: async ({ signal }) => {
      const place = read.current;
      for (let page = 0; page < MOST_PAGES; page += 1) {
        const found = await api.get<Schema<"EventPage">>(`${sandboxPath(sandbox)}/events`, {
          query: { after: place.next, limit: PAGE },
          headers: { Accept: "application/json" },
          signal,
        });
        place.next = found.next;
        place.events = [...place.events, ...found.items.filter((event) => types.includes(event.type))].slice(
          -MOST_KEPT,
        );
        if (found.items.length < PAGE) break;
      }
      return place.events;
    },
    enabled: active,
    refetchInterval: active ? 4_000 : false,
  });
}
