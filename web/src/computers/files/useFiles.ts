/** The directories that are looked at, and what can be done with what is in them. */

import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError, save } from "@/api/client";
import type { BoxView } from "@/session/types";
import { toast, toastError, undoable } from "@/ui/toasts";
import { useSandbox } from "../box";
import { archive, blob, changedSince, type Entry, list, makeDirectory, move, remove, upload } from "./box-files";
import { join, nameOf, parent, shown } from "./paths";
import type { Listed } from "./tree";

export interface Upload {
  id: number;
  name: string;
  share: number;
  stop: () => void;
}

let counted = 0;

export function useListings(box: BoxView, root: string, open: ReadonlySet<string>, active: boolean) {
  const queries = useQueryClient();
  const paths = [root, ...[...open].filter((path) => path !== root)];
  const found = useQueries({
    queries: paths.map((path) => ({
      queryKey: ["computers", box.id, "files", path],
      queryFn: ({ signal }: { signal: AbortSignal }) => list(box.id, path, signal),
      enabled: active,
      staleTime: 5_000,
    })),
  });
  const refresh = useCallback(() => {
    void queries.invalidateQueries({ queryKey: ["computers", box.id, "files"] });
    void queries.invalidateQueries({ queryKey: ["computers", box.id, "file"] });
  }, [queries, box.id]);
  const written = box.files.at(-1)?.at ?? "";
  useEffect(() => {
    if (written) refresh();
  }, [written, refresh]);
  const listed = (path: string): Listed => {
    const query = found[paths.indexOf(path)];
    return { entries: query?.data, failed: query?.isError ?? false };
  };
  const top = found[0];
  return {
    listed,
    refresh,
    error: top?.data ? null : (top?.error ?? null),
    fetching: found.some((each) => each.isFetching),
  };
}

/** When the box began, to tell what is new in it; null until that is known. */
export function useBegan(box: BoxView, active: boolean): string | null {
  return useSandbox(box.id, active).data?.createdAt ?? null;
}

export function useChanged(box: BoxView, root: string, began: string | null, wanted: boolean) {
  return useQuery({
    queryKey: ["computers", box.id, "files", root, "changed", began],
    queryFn: ({ signal }) => changedSince(box.id, root, began ?? "", signal),
    enabled: wanted && began !== null,
  });
}

/** What people do with files. `hidden` are those that will be gone in a moment. */
export function useDeeds(box: BoxView, refresh: () => void) {
  const { t } = useTranslation();
  const [uploads, setUploads] = useState<Upload[]>([]);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());

  const send = async (directory: string, files: File[]) => {
    const taken = new Set((await list(box.id, directory).catch(() => [] as Entry[])).map((entry) => entry.name));
    for (const file of files) {
      const name = freeName(file.name, taken);
      taken.add(name);
      counted += 1;
      const id = counted;
      const stop = new AbortController();
      const change = (share: number) =>
        setUploads((before) => before.map((each) => (each.id === id ? { ...each, share } : each)));
      setUploads((before) => [...before, { id, name, share: 0, stop: () => stop.abort() }]);
      try {
        await upload(box.id, join(directory, name), file, { onProgress: change, signal: stop.signal });
        if (name !== file.name) toast(t("computers.files.sentAs", { name: shown(name) }));
      } catch (error) {
        if (!stop.signal.aborted) toastError(error);
      } finally {
        setUploads((before) => before.filter((each) => each.id !== id));
        refresh();
      }
    }
  };

  const fetch = async (entry: Entry) => {
    const take = toast(t("computers.files.fetching", { name: shown(entry.name) }), { seconds: 60 });
    try {
      if (entry.type === "directory") save(await archive(box.id, entry.path), `${safeName(entry.name)}.tar.gz`);
      else save(await blob(box.id, entry.path), safeName(entry.name));
    } catch (error) {
      toastError(error);
    } finally {
      take();
    }
  };

  const discard = (entry: Entry) => {
    undoable(
      t("computers.files.deleted", { name: shown(entry.name) }),
      t("common.undo"),
      () => remove(box.id, entry).then(refresh),
      {
        hide: () => setHidden((before) => new Set([...before, entry.path])),
        show: () => setHidden((before) => new Set([...before].filter((each) => each !== entry.path))),
      },
    );
  };

  const rename = async (entry: Entry, name: string): Promise<string | null> => {
    const target = join(parent(entry.path), name);
    const beside = await list(box.id, parent(entry.path));
    if (beside.some((each) => each.name === name))
      throw new ApiError(409, "CONFLICT", t("computers.files.taken", { name: shown(name) }));
    await move(box.id, entry.path, target);
    refresh();
    return target;
  };

  const make = async (directory: string, name: string, type: "file" | "directory"): Promise<string> => {
    const path = join(directory, name);
    const beside = await list(box.id, directory);
    if (beside.some((each) => each.name === name))
      throw new ApiError(409, "CONFLICT", t("computers.files.taken", { name: shown(name) }));
    if (type === "directory") await makeDirectory(box.id, path);
    else await upload(box.id, path, new Blob([]));
    refresh();
    return path;
  };

  return { uploads, hidden, send, fetch, discard, rename, make };
}

/** `report.txt`, or `report (2).txt` if there is one: what is there is never replaced by a drop. */
export function freeName(name: string, taken: ReadonlySet<string>): string {
  if (!taken.has(name)) return name;
  const dot = name.lastIndexOf(".");
  const [stem, end] = dot > 0 ? [name.slice(0, dot), name.slice(dot)] : [name, ""];
  for (let number = 2; ; number += 1) if (!taken.has(`${stem} (${number})${end}`)) return `${stem} (${number})${end}`;
}

/** A name under which any computer can save it. */
export function safeName(path: string): string {
  return shown(nameOf(path)).replace(/[\\/:*?"<>|]/g, "_") || "file";
}
