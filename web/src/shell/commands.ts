/** What the palette offers: pages, things to do, and what was used last. */

import { useQuery } from "@tanstack/react-query";
import { Box, House, type LucideIcon, MessageCircle, MessageCirclePlus, Play, Rocket, SquarePlus } from "lucide-react";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useDeeds } from "./account";
import { may, useMe } from "./me";
import { PLACES } from "./places";

export interface Command {
  id: string;
  label: string;
  icon: LucideIcon;
  group: string;
  hint?: string;
  /** What it is found by besides its label. */
  words?: string;
  run: () => void;
}

export function useCommands(onShortcuts: () => void): Command[] {
  const { t } = useTranslation();
  const [, navigate] = useLocation();
  const me = useMe().data;
  const deeds = useDeeds(onShortcuts);
  const chats = useQuery({
    queryKey: ["shell", "palette", "chats"],
    queryFn: ({ signal }) => api.get<Schema<"SessionList">>("/v1/sessions", { query: { pageSize: 30 }, signal }),
    enabled: may(me, "sessions:read"),
  }).data;
  const runs = useQuery({
    queryKey: ["shell", "palette", "runs"],
    queryFn: ({ signal }) => api.get<Schema<"RunList">>("/v1/runs", { query: { pageSize: 30 }, signal }),
    enabled: may(me, "runs:read"),
  }).data;
  const boxes = useQuery({
    queryKey: ["shell", "palette", "sandboxes"],
    queryFn: ({ signal }) => api.get<Schema<"SandboxList">>("/v1/sandboxes", { query: { pageSize: 50 }, signal }),
    enabled: may(me, "sandboxes:read"),
  }).data;

  return useMemo(() => {
    const go = (path: string) => () => navigate(path);
    const commands: Command[] = [];
    const doing = t("shell.palette.groups.do");
    if (may(me, "sessions:write"))
      commands.push({
        id: "new-chat",
        label: t("shell.palette.newChat"),
        icon: MessageCirclePlus,
        group: doing,
        run: go("/chats"),
      });
    if (may(me, "runs:write"))
      commands.push({
        id: "new-run",
        label: t("shell.palette.newRun"),
        icon: Rocket,
        group: doing,
        run: go("/tasks/new"),
      });
    if (may(me, "sandboxes:write"))
      commands.push({
        id: "new-sandbox",
        label: t("shell.palette.newSandbox"),
        icon: SquarePlus,
        group: doing,
        run: go("/sandboxes?create=1"),
      });
    const pages = t("shell.palette.groups.pages");
    commands.push({ id: "home", label: t("shell.places.home"), icon: House, group: pages, run: go("/") });
    for (const { id, path, icon, scope } of PLACES)
      if (!scope || may(me, scope))
        commands.push({ id, label: t(`shell.places.${id}`), icon, group: pages, words: path, run: go(path) });
    for (const chat of chats?.items ?? [])
      commands.push({
        id: chat.id,
        label: chat.title || chat.id,
        icon: MessageCircle,
        group: t("shell.places.chats"),
        words: chat.id,
        run: go(`/chats/${encodeURIComponent(chat.id)}`),
      });
    for (const run of runs?.items ?? [])
      commands.push({
        id: run.id,
        label: run.name,
        hint: run.id,
        icon: Play,
        group: t("shell.places.runs"),
        words: run.id,
        run: go(`/runs/${encodeURIComponent(run.id)}`),
      });
    for (const box of boxes?.items ?? [])
      commands.push({
        id: box.id,
        label: box.metadata.name || box.id,
        hint: [box.extensions?.["paddock.kind"] ?? box.image?.uri, box.metadata.name && box.id]
          .filter(Boolean)
          .join(" · "),
        icon: Box,
        group: t("shell.places.sandboxes"),
        words: [box.id, ...Object.values(box.metadata)].join(" "),
        run: go(`/sandboxes/${encodeURIComponent(box.id)}`),
      });
    for (const deed of deeds)
      commands.push({ id: `deed-${deed.label}`, label: deed.label, icon: deed.icon, group: doing, run: deed.onSelect });
    return commands;
  }, [t, navigate, me, deeds, chats, runs, boxes]);
}
