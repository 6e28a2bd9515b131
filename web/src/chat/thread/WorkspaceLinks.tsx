/** Links to files of the agent's sandboxes, and images of them, in chat text. */

import { useQueries } from "@tanstack/react-query";
import { FileText } from "lucide-react";
import { useTranslation } from "react-i18next";
import { fileContentPath, listDirectory, START_DIRECTORY } from "@/sandbox-panel/files/sandbox-files";
import { isPathBelow, normalizePath } from "@/sandbox-panel/files/sandbox-paths";
import type { SandboxView } from "@/session/types";
import { ServerImage } from "@/ui/content/ServerImage";
import { useChatContext } from "../chat-context";
import { candidateFilePath } from "./path-candidates";
import styles from "./thread.module.css";

/** Directories that are listed automatically: the workspace and its children. */
const SEARCH_DEPTH = 2;

interface FoundFile {
  sandbox: SandboxView;
  path: string;
}

/** Find the file a text names; the newest sandbox comes first. */
function useFoundFile(text: string): FoundFile | null {
  const { sandboxes, revision } = useChatContext();
  const path = candidateFilePath(text);
  const ready = Object.values(sandboxes)
    .filter((sandbox) => sandbox.state === "ready")
    .reverse();
  const listings = useQueries({
    queries: ready.map((sandbox) => ({
      queryKey: ["chat", "workspace", sandbox.id, revision],
      queryFn: async ({ signal }: { signal: AbortSignal }) =>
        new Set((await listDirectory(sandbox.id, START_DIRECTORY, signal, SEARCH_DEPTH)).map((entry) => entry.path)),
      enabled: path !== null && isPathBelow(path, START_DIRECTORY),
      staleTime: 30_000,
      retry: false,
    })),
  });
  if (path === null) return null;
  const sandboxIndex = ready.findIndex(
    (sandbox, at) => listings[at]?.data?.has(path) || sandbox.files.some((file) => normalizePath(file.path) === path),
  );
  const sandbox = ready[sandboxIndex];
  return sandbox ? { sandbox, path } : null;
}

/** Inline code that opens the file if it is the path of one. */
export default function FilePathCode({ text }: { text: string }) {
  const { t } = useTranslation();
  const { show } = useChatContext();
  const found = useFoundFile(text);
  if (!found) return <code>{text}</code>;
  return (
    <button
      type="button"
      className={styles.fileLink}
      title={t("chat.openFile", { path: found.path })}
      onClick={() => show(found.sandbox.id, "files", found.path)}
    >
      <FileText size={13} aria-hidden />
      <code>{text}</code>
    </button>
  );
}

/** Image referenced by text: the copy saved in the chat, else the current file in the sandbox. */
export function WorkspacePicture({ source, alt }: { source: string; alt: string }) {
  const { t } = useTranslation();
  const { session, keptFiles, show } = useChatContext();
  const found = useFoundFile(source);
  const name = source.slice(source.lastIndexOf("/") + 1);
  const file = keptFiles[name];
  if (!file && !found) return <span>{alt || source}</span>;
  const pictureUrl = file
    ? `/v1/sessions/${session}/files/${file}?name=${encodeURIComponent(name)}`
    : fileContentPath(found?.sandbox.id ?? "", found?.path ?? "");
  const picture = <ServerImage path={pictureUrl} alt={alt || name} />;
  if (!found) return picture;
  return (
    <button
      type="button"
      className={styles.pictureLink}
      aria-label={`${alt || name}: ${t("chat.openFile", { path: found.path })}`}
      onClick={() => show(found.sandbox.id, "files", found.path)}
    >
      {picture}
    </button>
  );
}
