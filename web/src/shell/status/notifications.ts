/** Browser notifications: off until the user enables them and the browser allows them. */

import { create } from "zustand";
import { readStoredValue, writeStoredValue } from "@/ui/hooks/browser-storage";

const STORAGE_KEY = "notifications";
const isSupported = () => typeof Notification !== "undefined";

export type NotificationPermissionState = NotificationPermission | "unsupported";

interface NotificationState {
  on: boolean;
  permission: NotificationPermissionState;
}

const currentState = (enabled: boolean): NotificationState => {
  const permission = isSupported() ? Notification.permission : "unsupported";
  return { on: enabled && permission === "granted", permission };
};

export const useNotifications = create<NotificationState>(() => currentState(readStoredValue(STORAGE_KEY, false)));

/** Turn notifications on or off. The browser may ask for permission first. */
export async function setNotifications(on: boolean): Promise<void> {
  if (on && isSupported() && Notification.permission === "default") await Notification.requestPermission();
  const next = currentState(on);
  writeStoredValue(STORAGE_KEY, next.on);
  useNotifications.setState(next);
}
