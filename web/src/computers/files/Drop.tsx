import { X } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { IconButton } from "@/ui/Button";
import styles from "./Files.module.css";
import { shown } from "./paths";
import type { Upload } from "./useFiles";

/** A place on which files can be dropped. */
export function Drop({
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
  const carries = (event: React.DragEvent) => event.dataTransfer.types.includes("Files");
  return (
    <section
      className={styles.files}
      aria-label={t("computers.views.files")}
      onDragOver={(event) => {
        if (!carries(event)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
      }}
      onDrop={(event) => {
        if (!carries(event)) return;
        event.preventDefault();
        setOver(false);
        onFiles([...event.dataTransfer.files]);
      }}
    >
      {children}
      {over && <div className={styles.drop}>{t("computers.files.dropHere", { name: shown(label) })}</div>}
    </section>
  );
}

export function Uploads({ uploads }: { uploads: Upload[] }) {
  const { t } = useTranslation();
  if (!uploads.length) return null;
  return (
    <ul className={styles.uploads}>
      {uploads.map(({ id, name, share, stop }) => (
        <li key={id}>
          <bdi className={styles.fileName}>{shown(name)}</bdi>
          <progress value={share} max={1} aria-label={t("computers.files.sending", { name: shown(name) })} />
          <IconButton size="small" icon={X} label={t("common.cancel")} onClick={stop} />
        </li>
      ))}
    </ul>
  );
}
