/** The pages of the console, in the order of the navigation. */

import {
  Activity,
  Archive,
  Box,
  ChartLine,
  ListChecks,
  type LucideIcon,
  MessageCircle,
  Monitor,
  Play,
  Settings,
} from "lucide-react";

export interface Place {
  id: "chats" | "tasks" | "runs" | "archive" | "sandboxes" | "screens" | "usage" | "health" | "settings";
  path: string;
  icon: LucideIcon;
  /** What one must be allowed to do for it to be of use. */
  scope?: string;
  /** Whether it is in the bar of small screens; the others are behind "More" there. */
  close?: boolean;
}

export const PLACES: Place[] = [
  { id: "chats", path: "/chats", icon: MessageCircle, scope: "sessions:read", close: true },
  { id: "tasks", path: "/tasks", icon: ListChecks, scope: "runs:read" },
  { id: "runs", path: "/runs", icon: Play, scope: "runs:read", close: true },
  { id: "archive", path: "/archive", icon: Archive, scope: "llm:read" },
  { id: "sandboxes", path: "/sandboxes", icon: Box, scope: "sandboxes:read", close: true },
  { id: "screens", path: "/screens", icon: Monitor, scope: "sandboxes:read", close: true },
  { id: "usage", path: "/usage", icon: ChartLine, scope: "llm:read" },
  { id: "health", path: "/status", icon: Activity },
  { id: "settings", path: "/settings", icon: Settings },
];

/** Whether an address is a place or within it. */
export function isWithin(location: string, path: string): boolean {
  return location === path || location.startsWith(`${path}/`);
}
