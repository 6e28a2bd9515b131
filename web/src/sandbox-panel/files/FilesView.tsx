import {
  ArrowLeft,
  Download,
  ExternalLink,
  FilePlus,
  FileSearch,
  FolderPlus,
  FolderX,
  History,
  Pencil,
  Plus,
  RefreshCw,
  Trash2,
  Upload as UploadIcon,
} from "lucide-react";
import { useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import type { SandboxView } from "@/session/types";
import { Button, IconButton } from "@/ui/controls/Button";
import { Menu } from "@/ui/controls/Menu";
import { EmptyState, ErrorState, QueryResult } from "@/ui/layout/query-states";
import { openPopout } from "../open-popout";
import { useUrlChoice } from "../useUrlChoice";
import { FileDropZone, UploadProgress } from "./FileDropZone";
import { FileNameDialog, type NamingRequest } from "./FileNameDialog";
import { FilePreview } from "./FilePreview";
import styles from "./FilesView.module.css";
import { FileTree } from "./FileTree";
import { buildFileTreeRows } from "./file-tree-rows";
import { PathBreadcrumbs } from "./PathBreadcrumbs";
import { type FileEntry, START_DIRECTORY } from "./sandbox-files";
import { baseName, isPathBelow, normalizePath, parentPath } from "./sandbox-paths";
import { useChangedFiles, useDirectoryListings, useFileActions, useSandboxStart } from "./useFileActions";

interface Props {
  sandbox: SandboxView;
  active: boolean;
  standalone?: boolean;
}

export function FilesView({ sandbox, active, standalone }: Props) {
  const { t } = useTranslation();
  const [urlPath, choose] = useUrlChoice("path", active, START_DIRECTORY);
  const path = normalizePath(urlPath);
  const [root, setRoot] = useState(isPathBelow(path, START_DIRECTORY) ? START_DIRECTORY : "/");
  const [open, setOpen] = useState<ReadonlySet<string>>(() => directoriesToOpen(root, path));
  // A link elsewhere in the page may name a file in directories that are not open yet.
  const [previousPath, setPreviousPath] = useState(path);
  if (path !== previousPath) {
    setPreviousPath(path);
    const top = isPathBelow(path, root) ? root : "/";
    setRoot(top);
    setOpen((before) => new Set([...before, ...directoriesToOpen(top, path)]));
  }
  const [onlyNew, setOnlyNew] = useState(false);
  const [namingRequest, setNamingRequest] = useState<NamingRequest | null>(null);
  const [edit, setEdit] = useState<string | null>(null);
  const picker = useRef<HTMLInputElement>(null);

  const { listingOf, refresh, error, fetching } = useDirectoryListings(sandbox, root, open, active);
  const sandboxStart = useSandboxStart(sandbox, active);
  const changed = useChangedFiles(sandbox, root, sandboxStart, active && onlyNew);
  const fileActions = useFileActions(sandbox, refresh);
  const isShown = (entry: FileEntry) => !fileActions.hidden.has(entry.path);
  const isNew = (entry: FileEntry) => sandboxStart !== null && entry.type === "file" && entry.modifiedAt > sandboxStart;
  const rows = buildFileTreeRows(root, open, listingOf, isShown);
  const row = rows.find((each) => each.type === "entry" && each.entry.path === path);
  const entry = row?.type === "entry" ? row.entry : null;
  const isDirectory = path === root || entry?.type === "directory";
  const directory = isDirectory ? path : parentPath(path);

  const toggle = (at: string, on: boolean) => {
    const next = new Set(open);
    if (on) next.add(at);
    else next.delete(at);
    setOpen(next);
  };
  const go = (to: string) => {
    if (!isPathBelow(to, root)) setRoot(to);
    setOpen((before) => new Set([...before, ...directoriesToOpen(isPathBelow(to, root) ? root : to, to)]));
    choose(to);
  };
  const afterNaming = (to: string, type: NamingRequest["type"]) => {
    if (type === "file") setEdit(to);
    go(to);
  };
  const gone = error instanceof ApiError && error.status === 404;
  return (
    <FileDropZone onFiles={(files) => void fileActions.send(directory, files)} label={baseName(directory)}>
      <div className={styles.bar}>
        <PathBreadcrumbs path={path} onGo={go} />
        <div className={styles.tools}>
          <IconButton
            size="small"
            icon={History}
            label={onlyNew ? t("sandboxPanel.files.showAll") : t("sandboxPanel.files.showNew")}
            aria-pressed={onlyNew}
            onClick={() => setOnlyNew(!onlyNew)}
          />
          <IconButton
            size="small"
            icon={RefreshCw}
            label={t("sandboxPanel.files.refresh")}
            busy={fetching}
            onClick={refresh}
          />
          <Menu
            trigger={<IconButton size="small" icon={Plus} label={t("sandboxPanel.files.add")} />}
            items={[
              { label: t("sandboxPanel.files.upload"), icon: UploadIcon, onSelect: () => picker.current?.click() },
              {
                label: t("sandboxPanel.files.newFile"),
                icon: FilePlus,
                onSelect: () => setNamingRequest({ type: "file", directory }),
              },
              {
                label: t("sandboxPanel.files.newDirectory"),
                icon: FolderPlus,
                onSelect: () => setNamingRequest({ type: "directory", directory }),
              },
              {
                label: t("sandboxPanel.files.fetchAll"),
                icon: Download,
                onSelect: () => void fileActions.fetch(placeholderEntry(directory)),
              },
            ]}
          />
          {!standalone && (
            <IconButton
              size="small"
              icon={ExternalLink}
              label={t("sandboxPanel.popout")}
              onClick={() => openPopout(sandbox.id, "files")}
            />
          )}
        </div>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          onChange={(event) => {
            void fileActions.send(directory, [...(event.target.files ?? [])]);
            event.target.value = "";
          }}
        />
      </div>
      <UploadProgress uploads={fileActions.uploads} />
      <div className={styles.panes} data-file={!isDirectory || undefined}>
        <div className={styles.left}>
          {onlyNew ? (
            <QueryResult
              query={changed}
              isEmpty={(data) => data.filter(isShown).length === 0}
              empty={<EmptyState icon={History} title={t("sandboxPanel.files.nothingNew")} />}
            >
              {(data) => (
                <FileTree
                  rows={data.filter(isShown).map((each) => ({ type: "entry", entry: each, level: 1, open: false }))}
                  chosen={path}
                  isNew={isNew}
                  onChoose={(each) => go(each.path)}
                  onOpen={() => {}}
                />
              )}
            </QueryResult>
          ) : gone ? (
            <EmptyState
              icon={FolderX}
              title={t("sandboxPanel.files.noDirectory")}
              action={<Button onClick={() => go("/")}>{t("sandboxPanel.files.showRoot")}</Button>}
            />
          ) : error ? (
            <ErrorState error={error} retry={refresh} />
          ) : (
            <FileTree rows={rows} chosen={path} isNew={isNew} onChoose={(each) => choose(each.path)} onOpen={toggle} />
          )}
        </div>
        <div className={styles.right}>
          {isDirectory ? (
            <DirectoryView
              entry={entry}
              onFetch={() => void fileActions.fetch(entry ?? placeholderEntry(path))}
              onRename={entry ? () => setNamingRequest({ type: "rename", entry }) : undefined}
              onDelete={
                entry
                  ? () => {
                      fileActions.discard(entry);
                      choose(parentPath(path));
                    }
                  : undefined
              }
            />
          ) : (
            <FilePreview
              key={`${sandbox.id} ${path}`}
              sandbox={sandbox}
              path={path}
              active={active}
              edit={edit === path}
              isNew={entry ? isNew(entry) : false}
              backButton={
                <IconButton
                  className={styles.back}
                  size="small"
                  icon={ArrowLeft}
                  label={t("sandboxPanel.files.back")}
                  onClick={() => choose(parentPath(path))}
                />
              }
              onFetch={(each) => void fileActions.fetch(each)}
              onRename={(each) => setNamingRequest({ type: "rename", entry: each })}
              onDelete={(each) => {
                fileActions.discard(each);
                choose(parentPath(path));
              }}
              onGo={go}
            />
          )}
        </div>
      </div>
      <FileNameDialog
        request={namingRequest}
        onClose={() => setNamingRequest(null)}
        createEntry={fileActions.make}
        renameEntry={fileActions.rename}
        onDone={afterNaming}
      />
    </FileDropZone>
  );
}

/** Directories from the root to a path. */
function directoriesToOpen(root: string, path: string): Set<string> {
  const found = new Set<string>();
  for (let at = path; at !== root && at !== "/" && isPathBelow(at, root); at = parentPath(at))
    if (at !== path) found.add(at);
  return found;
}

function placeholderEntry(path: string): FileEntry {
  return { path, name: baseName(path), type: "directory", size: 0, modifiedAt: "", mode: 755 };
}

function DirectoryView({
  entry,
  onFetch,
  onRename,
  onDelete,
}: {
  entry: FileEntry | null;
  onFetch: () => void;
  onRename?: () => void;
  onDelete?: () => void;
}) {
  const { t } = useTranslation();
  return (
    <EmptyState
      icon={FileSearch}
      title={t("sandboxPanel.files.pick")}
      action={
        <div className={styles.row}>
          <Button size="small" icon={Download} onClick={onFetch}>
            {t("sandboxPanel.files.fetchAll")}
          </Button>
          {entry && onRename && (
            <Button size="small" icon={Pencil} onClick={onRename}>
              {t("sandboxPanel.files.rename")}
            </Button>
          )}
          {entry && onDelete && (
            <Button size="small" icon={Trash2} onClick={onDelete}>
              {t("common.delete")}
            </Button>
          )}
        </div>
      }
    >
      {t("sandboxPanel.files.pickHint")}
    </EmptyState>
  );
}
