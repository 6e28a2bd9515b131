/** Notifications of the browser: off until a person turns them on, and the browser allows them. */

import { create } from "zustand";
import { recall, remember } from "@/ui/remember";

const NAME = "notifications";
const has = () => typeof Notification !== "undefined";

export type Permission = NotificationPermission | "unsupported";

interface Notifications {
  on: boolean;
  permission: Permission;
}

const now = (wanted: boolean): Notifications => {
  const permission = has() ? Notification.permission : "unsupported";
  return { on: wanted && permission === "granted", permission };
};

export const useNotifications = create<Notifications>(() => now(recall(NAME, false)));

/** Turn them on or off. The browser may ask the person first. */
export async function setNotifications(on: boolean): Promise<void> {
  if (on && has() && Notification.permission === "default") await Notification.requestPermission();
  const next = now(on);
  remember(NAME, next.on);
  useNotifications.setState(next);
}
