/** Links to files of the agent's sandboxes, and images of them, in chat text. */

import { useQueries } from "@tanstack/react-query";
import { FileText } from "lucide-react";
import { useTranslation } from "react-i18next";
import { contentPath, listDirectory, START_DIRECTORY } from "@/sandbox-panel/files/sandbox-files";
import { isBelow, normalizePath } from "@/sandbox-panel/files/sandbox-paths";
import type { SandboxView } from "@/session/types";
import { ServerImage } from "@/ui/content/ServerImage";
import { useChat } from "../chat-context";
import { candidatePath } from "./path-candidates";
import styles from "./thread.module.css";

/** Directories that are listed automatically: the workspace and its children. */
const SEARCH_DEPTH = 2;

interface FoundFile {
  sandbox: SandboxView;
  path: string;
}

/** Find the file a text names; the newest sandbox comes first. */
function useFoundFile(text: string): FoundFile | null {
  const { sandboxes, revision } = useChat();
  const path = candidatePath(text);
  const ready = Object.values(sandboxes)
    .filter((sandbox) => sandbox.state === "ready")
    .reverse();
  const listed = useQueries({
    queries: ready.map((sandbox) => ({
      queryKey: ["chat", "workspace", sandbox.id, revision],
      queryFn: async ({ signal }: { signal: AbortSignal }) =>
        new Set((await listDirectory(sandbox.id, START_DIRECTORY, signal, SEARCH_DEPTH)).map((entry) => entry.path)),
      enabled: path !== null && isBelow(path, START_DIRECTORY),
      staleTime: 30_000,
      retry: false,
    })),
  });
  if (path === null) return null;
  const place = ready.findIndex(
    (sandbox, at) => listed[at]?.data?.has(path) || sandbox.files.some((file) => normalizePath(file.path) === path),
  );
  const sandbox = ready[place];
  return sandbox ? { sandbox, path } : null;
}

/** Inline code that opens the file if it is the path of one. */
export default function FileCode({ text }: { text: string }) {
  const { t } = useTranslation();
  const { show } = useChat();
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
  const { session, kept, show } = useChat();
  const found = useFoundFile(source);
  const name = source.slice(source.lastIndexOf("/") + 1);
  const file = kept[name];
  if (!file && !found) return <span>{alt || source}</span>;
  const place = file
    ? `/v1/sessions/${session}/files/${file}?name=${encodeURIComponent(name)}`
    : contentPath(found?.sandbox.id ?? "", found?.path ?? "");
  const picture = <ServerImage path={place} alt={alt || name} />;
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
