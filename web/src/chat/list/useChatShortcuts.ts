/** Keys that step through the list of chats. */

import { useEffect } from "react";
import { useLocation } from "wouter";
import { buildUrl } from "@/api/client";
import { useSessions } from "@/session/store";
import { isShortcutKeyPress, NEXT_CHAT_KEY, PREVIOUS_CHAT_KEY } from "@/shell/navigation/keyboard-shortcuts";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { useHiddenSessions } from "./session-actions";

/** The chat after or before the open one; without an open one, the first. Undefined at the ends of the list. */
export function neighbouringChat(
  ids: readonly string[],
  current: string | undefined,
  step: 1 | -1,
): string | undefined {
  const index = current === undefined ? -1 : ids.indexOf(current);
  if (index < 0) return step > 0 ? ids[0] : undefined;
  return ids[index + step];
}

/** Open the next or previous chat of the list, as it is filtered, by a key. */
export function useChatShortcuts(current: string | undefined): void {
  const [, go] = useLocation();
  const [search] = useSearchParams();
  const query = search.get("q") ?? "";
  const sessions = useSessions(query);
  const hidden = useHiddenSessions((state) => state.ids);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      const step = { [NEXT_CHAT_KEY]: 1 as const, [PREVIOUS_CHAT_KEY]: -1 as const }[event.key];
      if (!step || !isShortcutKeyPress(event)) return;
      const ids = (sessions.data ?? []).map(({ id }) => id).filter((id) => !hidden.has(id));
      const next = neighbouringChat(ids, current, step);
      if (!next) return;
      event.preventDefault();
      go(buildUrl(`/chats/${encodeURIComponent(next)}`, { q: query }));
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [current, go, query, sessions.data, hidden]);
}
