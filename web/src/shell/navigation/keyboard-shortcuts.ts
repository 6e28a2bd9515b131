/** Global shortcuts, disabled while a text field, terminal or desktop has the focus. */

import { useEffect } from "react";
import { useLocation } from "wouter";

/** Keys after `g`, and the pages they open. */
export const GO_TO_KEYS: Record<string, string> = {
  h: "/",
  c: "/chats",
  t: "/tasks",
  r: "/runs",
  a: "/archive",
  s: "/sandboxes",
  w: "/screens",
  m: "/tools",
  u: "/usage",
  l: "/status",
  e: "/settings",
};
/** Opens a new chat. */
export const NEW_CHAT_KEY = "n";
/** Steps through the list of chats. */
export const NEXT_CHAT_KEY = "j";
export const PREVIOUS_CHAT_KEY = "k";
const SEQUENCE_MS = 1_200;

/** Whether the focused element takes keys: a text field, a terminal, a desktop. */
export function capturesKeyboard(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.closest("[contenteditable=true]")) return true;
  return ["INPUT", "TEXTAREA", "SELECT", "CANVAS"].includes(target.tagName) || isRemoteInput(target);
}

function isRemoteInput(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest(".xterm, canvas, [data-takes-keys]") !== null;
}

export const isApple = /mac|iphone|ipad/i.test(navigator.platform || navigator.userAgent);

/** Whether a key press is a shortcut: no modifier, no field, terminal, desktop or dialog that takes it. */
export function isShortcutKeyPress(event: KeyboardEvent): boolean {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return false;
  return !capturesKeyboard(event.target) && !document.querySelector("[role=dialog], [role=menu]");
}

export function useGlobalShortcuts(open: (dialog: "palette" | "shortcuts" | null) => void): void {
  const [, navigate] = useLocation();
  useEffect(() => {
    let gPressedAt = 0;
    const pressed = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.isComposing) return;
      const command = isApple ? event.metaKey && !event.ctrlKey : event.ctrlKey && !event.metaKey;
      if (command && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
        // Ctrl+K belongs to the shell in a terminal; ⌘K does not.
        if (!isApple && isRemoteInput(event.target)) return;
        event.preventDefault();
        open("palette");
        return;
      }
      if (!isShortcutKeyPress(event)) return;
      if (event.key === "?") {
        event.preventDefault();
        open("shortcuts");
      } else if (event.key === "g") {
        gPressedAt = event.timeStamp;
      } else if (gPressedAt && event.timeStamp - gPressedAt < SEQUENCE_MS && GO_TO_KEYS[event.key]) {
        event.preventDefault();
        gPressedAt = 0;
        navigate(GO_TO_KEYS[event.key] ?? "/");
      } else {
        gPressedAt = 0;
        if (event.key !== NEW_CHAT_KEY) return;
        event.preventDefault();
        navigate("/chats");
      }
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, [navigate, open]);
}
