import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import { Button } from "@/ui/Button";
import { Diff } from "@/ui/Diff";
import { toast, toastError } from "@/ui/toasts";
import { type Entry, info, read, upload } from "./box-files";
import { asText } from "./bytes";
import styles from "./Files.module.css";
import { shown } from "./paths";

interface Props {
  sandbox: string;
  entry: Entry;
  text: string;
  onClose: () => void;
  onSaved: () => void;
}

/** Text to be changed. What somebody else wrote meanwhile is never overwritten unasked. */
export function Editor({ sandbox, entry, text, onClose, onSaved }: Props) {
  const { t } = useTranslation();
  const [mine, setMine] = useState(text);
  const [busy, setBusy] = useState(false);
  const [theirs, setTheirs] = useState<{ text: string | null; at: string } | null>(null);
  // What was on disk when we began, or what was seen of it since.
  const known = useRef({ at: entry.modifiedAt, windows: text.includes("\r\n") });

  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);

  const save = async () => {
    setBusy(true);
    try {
      const now = await info(sandbox, entry.path).catch((error: unknown) => {
        if (error instanceof ApiError && error.status === 404) return null;
        throw error;
      });
      if (now && now.modifiedAt !== known.current.at) {
        setTheirs({ text: asText(await read(sandbox, entry.path, 256 * 1024), false), at: now.modifiedAt });
        return;
      }
      // A text area knows one end of a line; files that had the other get it back.
      const content = known.current.windows ? mine.replaceAll(/\r?\n/g, "\r\n") : mine;
      await upload(sandbox, entry.path, new Blob([content]), { mode: entry.mode });
      known.current.at = (await info(sandbox, entry.path)).modifiedAt;
      toast(t("computers.files.saved", { name: shown(entry.name) }), { tone: "good" });
      onSaved();
      onClose();
    } catch (error) {
      toastError(error);
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
          <p>{t("computers.files.conflict")}</p>
          {theirs.text !== null && <Diff before={theirs.text} after={mine} label={t("computers.files.theirsToMine")} />}
          <div className={styles.row}>
            <Button size="small" onClick={() => settle("theirs")}>
              {t("computers.files.takeTheirs")}
            </Button>
            <Button size="small" onClick={() => settle("mine")}>
              {t("computers.files.keepMine")}
            </Button>
          </div>
        </div>
      )}
      <textarea
        ref={field}
        aria-label={t("computers.files.textOf", { name: shown(entry.name) })}
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
        <span className={styles.soft}>{mine === text ? "" : t("computers.files.unsaved")}</span>
        <Button size="small" onClick={onClose}>
          {mine === text ? t("common.close") : t("computers.files.dropChanges")}
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
