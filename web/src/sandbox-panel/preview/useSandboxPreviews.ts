/** Previews of a sandbox, and the ports on which its programs listen. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type RefObject, useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import { ApiError, api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { showErrorToast, showToast } from "@/ui/controls/toasts";
import { sandboxApiPath } from "../sandbox-queries";
import { newPorts, type Preview } from "./listening-ports";

const PORTS_POLL_MS = 4_000;
const PREVIEWS_POLL_MS = 10_000;

function previewsQueryKey(id: string) {
  return ["sandboxPanel", id, "previews"];
}

/** Whether another request would be refused too. */
function isRefused(error: unknown): boolean {
  return error instanceof ApiError && error.status >= 400 && error.status < 500;
}

/** Ports on which programs listen, polled while the page is visible. */
export function useListeningPorts(id: string, active: boolean) {
  return useQuery({
    queryKey: ["sandboxPanel", id, "ports"],
    queryFn: async ({ signal }) => {
      const found = await api.get<Schema<"ListeningPortsResponse">>(`${sandboxApiPath(id)}/ports`, { signal });
      return found.items.map(({ port }) => port);
    },
    enabled: active,
    retry: false,
    refetchInterval: (state) => (isRefused(state.state.error) ? false : PORTS_POLL_MS),
  });
}

function previewsQuery(id: string) {
  return {
    queryKey: previewsQueryKey(id),
    queryFn: async ({ signal }: { signal: AbortSignal }) =>
      (await api.get<Schema<"PreviewListResponse">>(`${sandboxApiPath(id)}/previews`, { signal })).items,
  };
}

export function usePreviews(id: string, active: boolean) {
  return useQuery({
    ...previewsQuery(id),
    enabled: active,
    refetchInterval: (state) => (isRefused(state.state.error) ? false : PREVIEWS_POLL_MS),
  });
}

/** Open a preview, or give it new terms. */
export function useExposePort(id: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (terms: { port: number; public?: boolean; ttl?: number }) =>
      api.post<Preview>(`${sandboxApiPath(id)}/previews`, terms),
    onSuccess: async (preview) => {
      await queries.cancelQueries({ queryKey: previewsQueryKey(id) });
      queries.setQueryData<Preview[]>(previewsQueryKey(id), (before = []) => [
        ...before.filter(({ port }) => port !== preview.port),
        preview,
      ]);
    },
    onError: showErrorToast,
  });
}

export function useClosePreview(id: string) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (port: number) => api.delete(`${sandboxApiPath(id)}/previews/${port}`),
    onSuccess: async (_, port) => {
      await queries.cancelQueries({ queryKey: previewsQueryKey(id) });
      queries.setQueryData<Preview[]>(previewsQueryKey(id), (before = []) =>
        before.filter((each) => each.port !== port),
      );
      showToast(t("portPreview.closed", { port }));
    },
    onError: showErrorToast,
  });
}

/**
 * Open the preview of a program that starts to listen, once per port. While the person works in the view `pane`,
 * a message offers it instead.
 */
export function usePreviewOfNewPort(
  id: string,
  active: boolean,
  pane: RefObject<HTMLElement | null>,
  show: (port: number) => void,
): void {
  const { t } = useTranslation();
  const me = useCurrentUser().data;
  const mayOpen = hasScope(me, "sandboxes:write");
  const queries = useQueryClient();
  const ports = useListeningPorts(id, active && mayOpen).data;
  const expose = useExposePort(id).mutateAsync;
  const seen = useRef<{ id: string; ports: readonly number[] } | null>(null);
  const latest = useRef({ show, t });
  latest.current = { show, t };
  useEffect(() => {
    if (!ports) return;
    const known = seen.current?.id === id ? seen.current.ports : null;
    const [port] = newPorts(known, ports);
    seen.current = { id, ports: [...new Set([...(known ?? []), ...ports])] };
    if (port === undefined) return;
    const open = async () => {
      const previews = await queries.fetchQuery(previewsQuery(id)).catch(() => null);
      // An open preview keeps its terms.
      const found = previews?.some((each) => each.port === port) || (await expose({ port }).catch(() => null));
      if (found) latest.current.show(port);
    };
    if (pane.current?.contains(document.activeElement))
      showToast(latest.current.t("portPreview.found", { port }), {
        seconds: 15,
        action: { label: latest.current.t("portPreview.showFound"), run: () => void open() },
      });
    else void open();
  }, [id, ports, expose, pane, queries]);
}
