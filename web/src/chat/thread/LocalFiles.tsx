import { File as FileIcon } from "lucide-react";
import { useEffect, useState } from "react";
import { formatBytes } from "@/ui/format/formats";
import styles from "./MessageFiles.module.css";

/** Object URL of a blob. */
export function useObjectUrl(content: Blob | undefined): string | undefined {
  const [url, setUrl] = useState<string>();
  useEffect(() => {
    if (!content) return;
    const source = URL.createObjectURL(content);
    setUrl(source);
    return () => {
      URL.revokeObjectURL(source);
      setUrl(undefined);
    };
  }, [content]);
  return url;
}

/** Files of this browser that are attached or being sent. */
export function LocalFiles({ files }: { files: readonly File[] }) {
  if (!files.length) return null;
  return (
    <ul className={styles.files}>
      {files.map((file, index) => (
        <li key={index}>
          <LocalFile file={file} />
        </li>
      ))}
    </ul>
  );
}

export function LocalFile({ file }: { file: File }) {
  const picture = file.type.startsWith("image/") && file.type !== "image/svg+xml";
  const source = useObjectUrl(picture ? file : undefined);
  if (source) return <img className={styles.small} src={source} alt={file.name} />;
  return (
    <span className={styles.file}>
      <FileIcon size={18} aria-hidden />
      <span className={styles.name}>{file.name}</span>
      <span className={styles.soft}>{formatBytes(file.size)}</span>
    </span>
  );
}
