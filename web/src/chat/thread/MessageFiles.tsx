import { useQuery } from "@tanstack/react-query";
import { Download, File as FileIcon, ImageOff } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api, downloadFile, saveBlob } from "@/api/client";
import type { FileContent } from "@/api/types";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { showErrorToast } from "@/ui/controls/toasts";
import { formatBytes } from "@/ui/format/formats";
import { useObjectUrl } from "./LocalFiles";
import styles from "./MessageFiles.module.css";

const filePath = (session: string, file: FileContent) => `/v1/sessions/${session}/files/${file.file}`;

/** Images and other files saved in the session. */
export function MessageFiles({ session, files }: { session: string; files: readonly FileContent[] }) {
  if (!files.length) return null;
  return (
    <ul className={styles.files}>
      {files.map((file, index) => (
        <li key={`${file.file}-${index}`}>
          {file.type === "image" ? (
            <FilePicture session={session} file={file} />
          ) : (
            <DownloadableFile session={session} file={file} />
          )}
        </li>
      ))}
    </ul>
  );
}

function FilePicture({ session, file }: { session: string; file: FileContent }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const picture = useQuery({
    queryKey: ["chat", "file", session, file.file],
    queryFn: ({ signal }) => api.blob(filePath(session, file), { signal }),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 300_000,
  });
  const source = useObjectUrl(picture.data);
  const name = file.name || t("chat.picture");
  return (
    <>
      <button
        type="button"
        className={styles.picture}
        aria-label={t("chat.openPicture", { name })}
        onClick={() => setOpen(true)}
      >
        {source ? <img src={source} alt="" /> : picture.error ? <ImageOff size={20} aria-hidden /> : null}
      </button>
      <Dialog
        wide
        open={open}
        onClose={() => setOpen(false)}
        title={name}
        footer={
          <Button icon={Download} onClick={() => picture.data && saveBlob(picture.data, name)}>
            {t("common.download")}
          </Button>
        }
      >
        {source && <img className={styles.large} src={source} alt={name} />}
      </Dialog>
    </>
  );
}

function DownloadableFile({ session, file }: { session: string; file: FileContent }) {
  const { t } = useTranslation();
  const [busy, setBusy] = useState(false);
  const name = file.name || t("chat.file");
  const fetchIt = async () => {
    setBusy(true);
    await downloadFile(filePath(session, file), name).catch(showErrorToast);
    setBusy(false);
  };
  return (
    <button type="button" className={styles.file} disabled={busy} onClick={() => void fetchIt()}>
      <FileIcon size={18} aria-hidden />
      <span className={styles.name}>{name}</span>
      <span className={styles.soft}>{formatBytes(file.size)}</span>
      <Download size={15} aria-hidden />
      <span className="visually-hidden">{t("common.download")}</span>
    </button>
  );
}
