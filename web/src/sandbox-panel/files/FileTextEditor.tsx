import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import { DiffView } from "@/ui/content/Diff";
import { Button } from "@/ui/controls/Button";
import { showErrorToast, showToast } from "@/ui/controls/toasts";
import styles from "./FilesView.module.css";
import { decodeUtf8Text } from "./hex-dump";
import { type FileEntry, readFileInfo, readFileStart, uploadFile } from "./sandbox-files";
import { safeDisplayName } from "./sandbox-paths";

interface Props {
  sandbox: string;
  entry: FileEntry;
  text: string;
  onClose: () => void;
  onSaved: () => void;
}

/** Text editor. Never overwrites concurrent changes without asking. */
export function FileTextEditor({ sandbox, entry, text, onClose, onSaved }: Props) {
  const { t } = useTranslation();
  const [ownText, setOwnText] = useState(text);
  const [busy, setBusy] = useState(false);
  const [diskVersion, setDiskVersion] = useState<{ text: string | null; at: string } | null>(null);
  // Content of the file when editing began, or last seen since.
  const savedFile = useRef({ at: entry.modifiedAt, windows: text.includes("\r\n") });

  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);

  const save = async () => {
    setBusy(true);
    try {
      const current = await readFileInfo(sandbox, entry.path).catch((error: unknown) => {
        if (error instanceof ApiError && error.status === 404) return null;
        throw error;
      });
      if (current && current.modifiedAt !== savedFile.current.at) {
        setDiskVersion({
          text: decodeUtf8Text(await readFileStart(sandbox, entry.path, 256 * 1024), false),
          at: current.modifiedAt,
        });
        return;
      }
      // A text area normalizes line endings; restore the file's own.
      const content = savedFile.current.windows ? ownText.replaceAll(/\r?\n/g, "\r\n") : ownText;
      await uploadFile(sandbox, entry.path, new Blob([content]), { mode: entry.mode });
      savedFile.current.at = (await readFileInfo(sandbox, entry.path)).modifiedAt;
      showToast(t("sandboxPanel.files.saved", { name: safeDisplayName(entry.name) }), { tone: "good" });
      onSaved();
      onClose();
    } catch (error) {
      showErrorToast(error);
    } finally {
      setBusy(false);
    }
  };
  const resolveConflict = (choice: "own" | "disk") => {
    if (!diskVersion) return;
    savedFile.current.at = diskVersion.at;
    if (choice === "disk") setOwnText(diskVersion.text ?? "");
    setDiskVersion(null);
  };
  return (
    <div className={styles.editor}>
      {diskVersion && (
        <div className={styles.conflict} role="alert">
          <p>{t("sandboxPanel.files.conflict")}</p>
          {diskVersion.text !== null && (
            <DiffView before={diskVersion.text} after={ownText} label={t("sandboxPanel.files.theirsToMine")} />
          )}
          <div className={styles.row}>
            <Button size="small" onClick={() => resolveConflict("disk")}>
              {t("sandboxPanel.files.takeTheirs")}
            </Button>
            <Button size="small" onClick={() => resolveConflict("own")}>
              {t("sandboxPanel.files.keepMine")}
            </Button>
          </div>
        </div>
      )}
      <textarea
        ref={field}
        aria-label={t("sandboxPanel.files.textOf", { name: safeDisplayName(entry.name) })}
        value={ownText}
        spellCheck={false}
        autoCapitalize="off"
        onChange={(event) => setOwnText(event.target.value)}
        onKeyDown={(event) => {
          if ((event.ctrlKey || event.metaKey) && event.key === "s") {
            event.preventDefault();
            void save();
          }
        }}
      />
      <footer className={styles.editorFoot}>
        <span className={styles.soft}>{ownText === text ? "" : t("sandboxPanel.files.unsaved")}</span>
        <Button size="small" onClick={onClose}>
          {ownText === text ? t("common.close") : t("sandboxPanel.files.dropChanges")}
        </Button>
        <Button
          size="small"
          tone="accent"
          busy={busy}
          disabled={diskVersion !== null || ownText === text}
          onClick={() => void save()}
        >
          {t("common.save")}
        </Button>
      </footer>
    </div>
  );
}
