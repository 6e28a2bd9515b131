import { X } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { IconButton } from "@/ui/controls/Button";
import styles from "./FilesView.module.css";
import { safeDisplayName } from "./sandbox-paths";
import type { FileUpload } from "./useFileActions";

/** Area that accepts dropped files. */
export function FileDropZone({
  label,
  onFiles,
  children,
}: {
  label: string;
  onFiles: (files: File[]) => void;
  children: ReactNode;
}) {
  const { t } = useTranslation();
  const [over, setOver] = useState(false);
  const hasFiles = (event: React.DragEvent) => event.dataTransfer.types.includes("Files");
  return (
    <section
      className={styles.files}
      aria-label={t("sandboxPanel.views.files")}
      onDragOver={(event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
      }}
      onDrop={(event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        setOver(false);
        onFiles([...event.dataTransfer.files]);
      }}
    >
      {children}
      {over && <div className={styles.drop}>{t("sandboxPanel.files.dropHere", { name: safeDisplayName(label) })}</div>}
    </section>
  );
}

export function UploadProgress({ uploads }: { uploads: FileUpload[] }) {
  const { t } = useTranslation();
  if (!uploads.length) return null;
  return (
    <ul className={styles.uploads}>
      {uploads.map(({ id, name, share, stop }) => (
        <li key={id}>
          <bdi className={styles.fileName}>{safeDisplayName(name)}</bdi>
          <progress
            value={share}
            max={1}
            aria-label={t("sandboxPanel.files.sending", { name: safeDisplayName(name) })}
          />
          <IconButton size="small" icon={X} label={t("common.cancel")} onClick={stop} />
        </li>
      ))}
    </ul>
  );
}
