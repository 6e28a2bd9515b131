/** Directory listings, and actions on files. */

import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError, saveBlob } from "@/api/client";
import type { SandboxView } from "@/session/types";
import { runWithUndo, showErrorToast, showToast } from "@/ui/controls/toasts";
import { useSandbox } from "../sandbox-queries";
import type { DirectoryListing } from "./file-tree-rows";
import {
  createDirectory,
  downloadDirectoryArchive,
  type FileEntry,
  listDirectory,
  listFilesChangedSince,
  movePath,
  readFileBlob,
  removeFileEntry,
  uploadFile,
} from "./sandbox-files";
import { baseName, joinPath, parentPath, safeDisplayName } from "./sandbox-paths";

export interface FileUpload {
  id: number;
  name: string;
  share: number;
  stop: () => void;
}

let uploadCounter = 0;

export function useDirectoryListings(sandbox: SandboxView, root: string, open: ReadonlySet<string>, active: boolean) {
  const queries = useQueryClient();
  const paths = [root, ...[...open].filter((path) => path !== root)];
  const found = useQueries({
    queries: paths.map((path) => ({
      queryKey: ["sandboxPanel", sandbox.id, "files", path],
      queryFn: ({ signal }: { signal: AbortSignal }) => listDirectory(sandbox.id, path, signal),
      enabled: active,
      staleTime: 5_000,
    })),
  });
  const refresh = useCallback(() => {
    void queries.invalidateQueries({ queryKey: ["sandboxPanel", sandbox.id, "files"] });
    void queries.invalidateQueries({ queryKey: ["sandboxPanel", sandbox.id, "file"] });
  }, [queries, sandbox.id]);
  const lastWrittenAt = sandbox.files.at(-1)?.at ?? "";
  useEffect(() => {
    if (lastWrittenAt) refresh();
  }, [lastWrittenAt, refresh]);
  const listingOf = (path: string): DirectoryListing => {
    const query = found[paths.indexOf(path)];
    return { entries: query?.data, failed: query?.isError ?? false };
  };
  const top = found[0];
  return {
    listingOf,
    refresh,
    error: top?.data ? null : (top?.error ?? null),
    fetching: found.some((each) => each.isFetching),
  };
}

/** Start time of the sandbox, to mark newer files; null until known. */
export function useSandboxStart(sandbox: SandboxView, active: boolean): string | null {
  return useSandbox(sandbox.id, active).data?.createdAt ?? null;
}

export function useChangedFiles(sandbox: SandboxView, root: string, startedAt: string | null, enabled: boolean) {
  return useQuery({
    queryKey: ["sandboxPanel", sandbox.id, "files", root, "changed", startedAt],
    queryFn: ({ signal }) => listFilesChangedSince(sandbox.id, root, startedAt ?? "", signal),
    enabled: enabled && startedAt !== null,
  });
}

/** File actions of the user. `hidden` are entries about to be deleted. */
export function useFileActions(sandbox: SandboxView, refresh: () => void) {
  const { t } = useTranslation();
  const [uploads, setUploads] = useState<FileUpload[]>([]);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());

  const send = async (directory: string, files: File[]) => {
    const takenNames = new Set(
      (await listDirectory(sandbox.id, directory).catch(() => [] as FileEntry[])).map((entry) => entry.name),
    );
    for (const file of files) {
      const name = unusedFileName(file.name, takenNames);
      takenNames.add(name);
      uploadCounter += 1;
      const id = uploadCounter;
      const stop = new AbortController();
      const change = (share: number) =>
        setUploads((before) => before.map((each) => (each.id === id ? { ...each, share } : each)));
      setUploads((before) => [...before, { id, name, share: 0, stop: () => stop.abort() }]);
      try {
        await uploadFile(sandbox.id, joinPath(directory, name), file, { onProgress: change, signal: stop.signal });
        if (name !== file.name) showToast(t("sandboxPanel.files.sentAs", { name: safeDisplayName(name) }));
      } catch (error) {
        if (!stop.signal.aborted) showErrorToast(error);
      } finally {
        setUploads((before) => before.filter((each) => each.id !== id));
        refresh();
      }
    }
  };

  const fetch = async (entry: FileEntry) => {
    const dismissToast = showToast(t("sandboxPanel.files.fetching", { name: safeDisplayName(entry.name) }), {
      seconds: 60,
    });
    try {
      if (entry.type === "directory")
        saveBlob(await downloadDirectoryArchive(sandbox.id, entry.path), `${safeFileName(entry.name)}.tar.gz`);
      else saveBlob(await readFileBlob(sandbox.id, entry.path), safeFileName(entry.name));
    } catch (error) {
      showErrorToast(error);
    } finally {
      dismissToast();
    }
  };

  const discard = (entry: FileEntry) => {
    runWithUndo(
      t("sandboxPanel.files.deleted", { name: safeDisplayName(entry.name) }),
      t("common.undo"),
      () => removeFileEntry(sandbox.id, entry).then(refresh),
      {
        hide: () => setHidden((before) => new Set([...before, entry.path])),
        show: () => setHidden((before) => new Set([...before].filter((each) => each !== entry.path))),
      },
    );
  };

  const rename = async (entry: FileEntry, name: string): Promise<string | null> => {
    const target = joinPath(parentPath(entry.path), name);
    const siblings = await listDirectory(sandbox.id, parentPath(entry.path));
    if (siblings.some((each) => each.name === name))
      throw new ApiError(409, "CONFLICT", t("sandboxPanel.files.taken", { name: safeDisplayName(name) }));
    await movePath(sandbox.id, entry.path, target);
    refresh();
    return target;
  };

  const make = async (directory: string, name: string, type: "file" | "directory"): Promise<string> => {
    const path = joinPath(directory, name);
    const siblings = await listDirectory(sandbox.id, directory);
    if (siblings.some((each) => each.name === name))
      throw new ApiError(409, "CONFLICT", t("sandboxPanel.files.taken", { name: safeDisplayName(name) }));
    if (type === "directory") await createDirectory(sandbox.id, path);
    else await uploadFile(sandbox.id, path, new Blob([]));
    refresh();
    return path;
  };

  return { uploads, hidden, send, fetch, discard, rename, make };
}

/** `report.txt`, or `report (2).txt` if it exists: dropped files never replace others. */
export function unusedFileName(name: string, takenNames: ReadonlySet<string>): string {
  if (!takenNames.has(name)) return name;
  const dot = name.lastIndexOf(".");
  const [stem, end] = dot > 0 ? [name.slice(0, dot), name.slice(dot)] : [name, ""];
  for (let number = 2; ; number += 1)
    if (!takenNames.has(`${stem} (${number})${end}`)) return `${stem} (${number})${end}`;
}

/** File name that is valid on every system. */
export function safeFileName(path: string): string {
  return safeDisplayName(baseName(path)).replace(/[\\/:*?"<>|]/g, "_") || "file";
}
