import { useQuery } from "@tanstack/react-query";
import { Download, File as FileIcon, ImageOff } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api, download, save } from "@/api/client";
import type { FileContent } from "@/api/types";
import { Button } from "@/ui/Button";
import { Dialog } from "@/ui/Dialog";
import { size } from "@/ui/Time";
import { toastError } from "@/ui/toasts";
import styles from "./Files.module.css";
import { useObjectUrl } from "./LocalFiles";

const path = (session: string, file: FileContent) => `/v1/sessions/${session}/files/${file.file}`;

/** Pictures and other files that the session keeps. */
export function Files({ session, files }: { session: string; files: readonly FileContent[] }) {
  if (!files.length) return null;
  return (
    <ul className={styles.files}>
      {files.map((file, index) => (
        <li key={`${file.file}-${index}`}>
          {file.type === "image" ? <Picture session={session} file={file} /> : <Saved session={session} file={file} />}
        </li>
      ))}
    </ul>
  );
}

function Picture({ session, file }: { session: string; file: FileContent }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const picture = useQuery({
    queryKey: ["chat", "file", session, file.file],
    queryFn: ({ signal }) => api.blob(path(session, file), { signal }),
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
          <Button icon={Download} onClick={() => picture.data && save(picture.data, name)}>
            {t("common.download")}
          </Button>
        }
      >
        {source && <img className={styles.large} src={source} alt={name} />}
      </Dialog>
    </>
  );
}

function Saved({ session, file }: { session: string; file: FileContent }) {
  const { t } = useTranslation();
  const [busy, setBusy] = useState(false);
  const name = file.name || t("chat.file");
  const fetchIt = async () => {
    setBusy(true);
    await download(path(session, file), name).catch(toastError);
    setBusy(false);
  };
  return (
    <button type="button" className={styles.file} disabled={busy} onClick={() => void fetchIt()}>
      <FileIcon size={18} aria-hidden />
      <span className={styles.name}>{name}</span>
      <span className={styles.soft}>{size(file.size)}</span>
      <Download size={15} aria-hidden />
      <span className="visually-hidden">{t("common.download")}</span>
    </button>
  );
}
