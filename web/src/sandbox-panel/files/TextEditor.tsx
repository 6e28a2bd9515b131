import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import { DiffView } from "@/ui/content/Diff";
import { Button } from "@/ui/controls/Button";
import { showErrorToast, showToast } from "@/ui/controls/toasts";
import styles from "./FilesView.module.css";
import { decodeText } from "./hex-dump";
import { type FileEntry, fileInfo, readFile, uploadFile } from "./sandbox-files";
import { displayName } from "./sandbox-paths";

interface Props {
  sandbox: string;
  entry: FileEntry;
  text: string;
  onClose: () => void;
  onSaved: () => void;
}

/** Text editor. Never overwrites concurrent changes without asking. */
export function TextEditor({ sandbox, entry, text, onClose, onSaved }: Props) {
  const { t } = useTranslation();
  const [mine, setMine] = useState(text);
  const [busy, setBusy] = useState(false);
  const [theirs, setTheirs] = useState<{ text: string | null; at: string } | null>(null);
  // Content of the file when editing began, or last seen since.
  const known = useRef({ at: entry.modifiedAt, windows: text.includes("\r\n") });

  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);

  const save = async () => {
    setBusy(true);
    try {
      const now = await fileInfo(sandbox, entry.path).catch((error: unknown) => {
        if (error instanceof ApiError && error.status === 404) return null;
        throw error;
      });
      if (now && now.modifiedAt !== known.current.at) {
        setTheirs({ text: decodeText(await readFile(sandbox, entry.path, 256 * 1024), false), at: now.modifiedAt });
        return;
      }
      // A text area normalizes line endings; restore the file's own.
      const content = known.current.windows ? mine.replaceAll(/\r?\n/g, "\r\n") : mine;
      await uploadFile(sandbox, entry.path, new Blob([content]), { mode: entry.mode });
      known.current.at = (await fileInfo(sandbox, entry.path)).modifiedAt;
      showToast(t("sandboxPanel.files.saved", { name: displayName(entry.name) }), { tone: "good" });
      onSaved();
      onClose();
    } catch (error) {
      showErrorToast(error);
    } finally {
      setBusy(false);
    }
  };
  const settle = (keep: "mine" | "theirs") => {
    if (!theirs) return;
    known.current.at = theirs.at;
    if (keep === "theirs") setMine(theirs.text ?? "");
    setTheirs(null);
  };
  return (
    <div className={styles.editor}>
      {theirs && (
        <div className={styles.conflict} role="alert">
          <p>{t("sandboxPanel.files.conflict")}</p>
          {theirs.text !== null && (
            <DiffView before={theirs.text} after={mine} label={t("sandboxPanel.files.theirsToMine")} />
          )}
          <div className={styles.row}>
            <Button size="small" onClick={() => settle("theirs")}>
              {t("sandboxPanel.files.takeTheirs")}
            </Button>
            <Button size="small" onClick={() => settle("mine")}>
              {t("sandboxPanel.files.keepMine")}
            </Button>
          </div>
        </div>
      )}
      <textarea
        ref={field}
        aria-label={t("sandboxPanel.files.textOf", { name: displayName(entry.name) })}
        value={mine}
        spellCheck={false}
        autoCapitalize="off"
        onChange={(event) => setMine(event.target.value)}
        onKeyDown={(event) => {
          if ((event.ctrlKey || event.metaKey) && event.key === "s") {
            event.preventDefault();
            void save();
          }
        }}
      />
      <footer className={styles.editorFoot}>
        <span className={styles.soft}>{mine === text ? "" : t("sandboxPanel.files.unsaved")}</span>
        <Button size="small" onClick={onClose}>
          {mine === text ? t("common.close") : t("sandboxPanel.files.dropChanges")}
        </Button>
        <Button
          size="small"
          tone="accent"
          busy={busy}
          disabled={theirs !== null || mine === text}
          onClick={() => void save()}
        >
          {t("common.save")}
        </Button>
      </footer>
    </div>
  );
}
