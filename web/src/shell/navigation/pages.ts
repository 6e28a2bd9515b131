/** Pages of the console, in navigation order. */

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
  Wrench,
} from "lucide-react";

export interface ConsolePage {
  id: "chats" | "tasks" | "runs" | "archive" | "sandboxes" | "screens" | "tools" | "usage" | "health" | "settings";
  path: string;
  icon: LucideIcon;
  /** Scope needed to use the page. */
  scope?: string;
  /** Whether the page is in the bottom bar of small screens; others are behind "More". */
  close?: boolean;
}

export const CONSOLE_PAGES: ConsolePage[] = [
  { id: "chats", path: "/chats", icon: MessageCircle, scope: "sessions:read", close: true },
  { id: "tasks", path: "/tasks", icon: ListChecks, scope: "runs:read" },
  { id: "runs", path: "/runs", icon: Play, scope: "runs:read", close: true },
  { id: "archive", path: "/archive", icon: Archive, scope: "llm:read" },
  { id: "sandboxes", path: "/sandboxes", icon: Box, scope: "sandboxes:read", close: true },
  { id: "screens", path: "/screens", icon: Monitor, scope: "sandboxes:read", close: true },
  { id: "tools", path: "/tools", icon: Wrench, scope: "mcp:use" },
  { id: "usage", path: "/usage", icon: ChartLine, scope: "llm:read" },
  { id: "health", path: "/status", icon: Activity },
  { id: "settings", path: "/settings", icon: Settings },
];

/** Whether a location is at or below a path. */
export function isWithinPath(location: string, path: string): boolean {
  return location === path || location.startsWith(`${path}/`);
}
