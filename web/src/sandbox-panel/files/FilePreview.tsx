import { useQuery } from "@tanstack/react-query";
import { Download, Link2, Pencil, TextCursorInput, Trash2 } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import type { SandboxView } from "@/session/types";
import { DiffView } from "@/ui/content/Diff";
import { Badge } from "@/ui/controls/Badge";
import { Button, IconButton } from "@/ui/controls/Button";
import { formatBytes, RelativeTime } from "@/ui/format/formats";
import { EmptyState, ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { FileContentView, HexView, TextLines } from "./FileContentView";
import styles from "./FilesView.module.css";
import { FileTextEditor } from "./FileTextEditor";
import { fileDisplay } from "./file-types";
import { decodeUtf8Text } from "./hex-dump";
import { type FileEntry, readCommittedFile, readFileInfo, readFileStart } from "./sandbox-files";
import { safeDisplayName } from "./sandbox-paths";

export const PREVIEW_BYTES = 256 * 1024;

interface Props {
  sandbox: SandboxView;
  path: string;
  active: boolean;
  /** Start in edit mode. */
  edit: boolean;
  /** Whether the file was written since the sandbox started. */
  isNew: boolean;
  /** Back button to the tree, on narrow layouts. */
  backButton: ReactNode;
  onFetch: (entry: FileEntry) => void;
  onRename: (entry: FileEntry) => void;
  onDelete: (entry: FileEntry) => void;
  onGo: (path: string) => void;
}

type PreviewMode = "view" | "source" | "changes" | "edit";

/** One file: details, content and actions. */
export function FilePreview({
  sandbox,
  path,
  active,
  edit,
  isNew,
  backButton,
  onFetch,
  onRename,
  onDelete,
  onGo,
}: Props) {
  const { t } = useTranslation();
  const [mode, setMode] = useState<PreviewMode>(edit ? "edit" : "view");
  const query = useQuery({
    queryKey: ["sandboxPanel", sandbox.id, "file", path],
    queryFn: async ({ signal }) => {
      const entry = await readFileInfo(sandbox.id, path, signal);
      const head = await readFileStart(sandbox.id, path, PREVIEW_BYTES, signal);
      const isComplete = head.length < PREVIEW_BYTES;
      return { entry, head, isComplete, text: decodeUtf8Text(head, isComplete) };
    },
    enabled: active,
    staleTime: 10_000,
    // The text being edited must not change; saving checks for conflicts.
    refetchOnWindowFocus: mode !== "edit",
  });
  const old = useQuery({
    queryKey: ["sandboxPanel", sandbox.id, "file", path, "committed", query.data?.entry.modifiedAt],
    queryFn: ({ signal }) => readCommittedFile(sandbox.id, path, signal),
    enabled: active && isNew && query.data?.text !== null && query.data?.isComplete === true,
    staleTime: 60_000,
    retry: false,
  });
  const { data } = query;
  if (!data) {
    if (query.error instanceof ApiError && query.error.status === 400)
      return (
        <EmptyState
          icon={Link2}
          title={t("sandboxPanel.files.noFile")}
          action={<Button onClick={() => onGo(path)}>{t("sandboxPanel.files.openIt")}</Button>}
        >
          {t("sandboxPanel.files.noFileHint")}
        </EmptyState>
      );
    return query.error ? <ErrorState error={query.error} retry={() => void query.refetch()} /> : <LoadingBars />;
  }
  const { entry, text, head, isComplete } = data;
  const shape =
    text === null && !["image", "pdf", "audio", "video"].includes(fileDisplay(path)) ? "bytes" : fileDisplay(path);
  const rich = shape !== "text" && shape !== "bytes";
  const differs = typeof old.data === "string" && old.data !== text;
  const modes: PreviewMode[] = [
    "view",
    ...(rich && text !== null ? (["source"] as const) : []),
    ...(differs ? (["changes"] as const) : []),
  ];
  const editable = text !== null && isComplete && entry.type === "file";
  return (
    <article className={styles.preview} aria-label={safeDisplayName(entry.name)}>
      <header className={styles.fileHead}>
        {backButton}
        <div className={styles.fileTitle}>
          <h2>
            <bdi>{safeDisplayName(entry.name)}</bdi>{" "}
            {isNew && (
              <Badge tone="good">
                {t(
                  `sandboxPanel.files.${typeof old.data !== "string" ? "either" : old.data === "" ? "new" : "changed"}`,
                )}
              </Badge>
            )}
          </h2>
          <p className={styles.soft}>
            {formatBytes(entry.size)} · <RelativeTime at={entry.modifiedAt} />
          </p>
        </div>
        <div className={styles.tools}>
          {modes.length > 1 &&
            mode !== "edit" &&
            modes.map((each) => (
              <Button
                key={each}
                size="small"
                tone="quiet"
                aria-pressed={mode === each}
                className={styles.mode}
                onClick={() => setMode(each)}
              >
                {t(`sandboxPanel.files.modes.${each}`)}
              </Button>
            ))}
          {editable && mode !== "edit" && (
            <IconButton
              size="small"
              icon={Pencil}
              label={t("sandboxPanel.files.edit")}
              onClick={() => setMode("edit")}
            />
          )}
          <IconButton size="small" icon={Download} label={t("common.download")} onClick={() => onFetch(entry)} />
          <IconButton
            size="small"
            icon={TextCursorInput}
            label={t("sandboxPanel.files.rename")}
            onClick={() => onRename(entry)}
          />
          <IconButton size="small" icon={Trash2} label={t("common.delete")} onClick={() => onDelete(entry)} />
        </div>
      </header>
      {mode === "edit" && editable ? (
        <FileTextEditor
          sandbox={sandbox.id}
          entry={entry}
          text={text}
          onClose={() => setMode("view")}
          onSaved={() => void query.refetch()}
        />
      ) : (
        <div className={styles.content}>
          {!isComplete && text !== null && (
            <p className={styles.cut}>
              {t("sandboxPanel.files.cut", { shown: formatBytes(head.length), size: formatBytes(entry.size) })}
            </p>
          )}
          {mode === "changes" && typeof old.data === "string" && text !== null ? (
            <div className={styles.padded}>
              <DiffView before={old.data} after={text} label={safeDisplayName(path)} />
            </div>
          ) : mode === "source" && text !== null ? (
            <TextLines text={text} />
          ) : shape === "bytes" ? (
            <HexView head={head} size={entry.size} />
          ) : (
            <FileContentView sandbox={sandbox} entry={entry} shape={shape} text={text} />
          )}
        </div>
      )}
    </article>
  );
}
