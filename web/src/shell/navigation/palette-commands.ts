/** Entries of the command palette: pages, actions and recent items. */

import { useQuery } from "@tanstack/react-query";
import { Box, House, type LucideIcon, MessageCircle, MessageCirclePlus, Play, Rocket, SquarePlus } from "lucide-react";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useAccountActions } from "../account/account-actions";
import { hasScope, useCurrentUser } from "../account/current-user";
import { CONSOLE_PAGES } from "./pages";
import { SETTINGS_TOPICS } from "./settings-topics";

export interface PaletteCommand {
  id: string;
  label: string;
  icon: LucideIcon;
  group: string;
  hint?: string;
  /** Search terms besides the label. */
  searchText?: string;
  run: () => void;
}

export function usePaletteCommands(onShortcuts: () => void): PaletteCommand[] {
  const { t } = useTranslation();
  const [, navigate] = useLocation();
  const me = useCurrentUser().data;
  const actions = useAccountActions(onShortcuts);
  const chats = useQuery({
    queryKey: ["shell", "palette", "chats"],
    queryFn: ({ signal }) =>
      api.get<Schema<"SessionListResponse">>("/v1/sessions", { query: { pageSize: 30 }, signal }),
    enabled: hasScope(me, "sessions:read"),
  }).data;
  const runs = useQuery({
    queryKey: ["shell", "palette", "runs"],
    queryFn: ({ signal }) => api.get<Schema<"RunListResponse">>("/v1/runs", { query: { pageSize: 30 }, signal }),
    enabled: hasScope(me, "runs:read"),
  }).data;
  const sandboxes = useQuery({
    queryKey: ["shell", "palette", "sandboxes"],
    queryFn: ({ signal }) =>
      api.get<Schema<"SandboxListResponse">>("/v1/sandboxes", { query: { pageSize: 50 }, signal }),
    enabled: hasScope(me, "sandboxes:read"),
  }).data;

  return useMemo(() => {
    const go = (path: string) => () => navigate(path);
    const commands: PaletteCommand[] = [];
    const actionsGroup = t("shell.palette.groups.do");
    if (hasScope(me, "sessions:write"))
      commands.push({
        id: "new-chat",
        label: t("shell.palette.newChat"),
        icon: MessageCirclePlus,
        group: actionsGroup,
        run: go("/chats"),
      });
    if (hasScope(me, "runs:write"))
      commands.push({
        id: "new-run",
        label: t("shell.palette.newRun"),
        icon: Rocket,
        group: actionsGroup,
        run: go("/tasks/new"),
      });
    if (hasScope(me, "sandboxes:write"))
      commands.push({
        id: "new-sandbox",
        label: t("shell.palette.newSandbox"),
        icon: SquarePlus,
        group: actionsGroup,
        run: go("/sandboxes?create=1"),
      });
    const pages = t("shell.palette.groups.pages");
    commands.push({ id: "home", label: t("shell.places.home"), icon: House, group: pages, run: go("/") });
    for (const { id, path, icon, scope } of CONSOLE_PAGES)
      if (!scope || hasScope(me, scope))
        commands.push({ id, label: t(`shell.places.${id}`), icon, group: pages, searchText: path, run: go(path) });
    for (const { id, icon } of SETTINGS_TOPICS)
      commands.push({
        id: `settings-${id}`,
        label: `${t("shell.places.settings")} → ${t(`settings.${id}.title`)}`,
        icon,
        group: pages,
        searchText: `/settings/${id}`,
        run: go(`/settings/${id}`),
      });
    for (const chat of chats?.items ?? [])
      commands.push({
        id: chat.id,
        label: chat.title || chat.id,
        icon: MessageCircle,
        group: t("shell.places.chats"),
        searchText: chat.id,
        run: go(`/chats/${encodeURIComponent(chat.id)}`),
      });
    for (const run of runs?.items ?? [])
      commands.push({
        id: run.id,
        label: run.name,
        hint: run.id,
        icon: Play,
        group: t("shell.places.runs"),
        searchText: run.id,
        run: go(`/runs/${encodeURIComponent(run.id)}`),
      });
    for (const sandbox of sandboxes?.items ?? [])
      commands.push({
        id: sandbox.id,
        label: sandbox.metadata.name || sandbox.id,
        hint: [sandbox.extensions?.["paddock.kind"] ?? sandbox.image?.uri, sandbox.metadata.name && sandbox.id]
          .filter(Boolean)
          .join(" · "),
        icon: Box,
        group: t("shell.places.sandboxes"),
        searchText: [sandbox.id, ...Object.values(sandbox.metadata)].join(" "),
        run: go(`/sandboxes/${encodeURIComponent(sandbox.id)}`),
      });
    for (const action of actions)
      commands.push({
        id: `deed-${action.label}`,
        label: action.label,
        icon: action.icon,
        group: actionsGroup,
        run: action.onSelect,
      });
    return commands;
  }, [t, navigate, me, actions, chats, runs, sandboxes]);
}
