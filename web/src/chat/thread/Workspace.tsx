/** Files of the agent's sandboxes that its words name: links to them, and pictures of them. */

import { useQueries } from "@tanstack/react-query";
import { FileText } from "lucide-react";
import { useTranslation } from "react-i18next";
import { contentPath, list, START } from "@/computers/files/box-files";
import { isBelow, normal } from "@/computers/files/paths";
import type { BoxView } from "@/session/types";
import { Picture } from "@/ui/Picture";
import { useChat } from "../context";
import { candidate } from "./paths";
import styles from "./thread.module.css";

/** Directories that are looked into without being asked for: the workspace, and those in it. */
const DEPTH = 2;

interface Found {
  box: BoxView;
  path: string;
}

/** Where a file is that a text names; the sandbox that came last counts first. */
function useFound(text: string): Found | null {
  const { boxes, revision } = useChat();
  const path = candidate(text);
  const ready = Object.values(boxes)
    .filter((box) => box.state === "ready")
    .reverse();
  const listed = useQueries({
    queries: ready.map((box) => ({
      queryKey: ["chat", "workspace", box.id, revision],
      queryFn: async ({ signal }: { signal: AbortSignal }) =>
        new Set((await list(box.id, START, signal, DEPTH)).map((entry) => entry.path)),
      enabled: path !== null && isBelow(path, START),
      staleTime: 30_000,
      retry: false,
    })),
  });
  if (path === null) return null;
  const place = ready.findIndex(
    (box, at) => listed[at]?.data?.has(path) || box.files.some((file) => normal(file.path) === path),
  );
  const box = ready[place];
  return box ? { box, path } : null;
}

/** A piece of code in a text, which opens the file if it is the path of one. */
export default function FileCode({ text }: { text: string }) {
  const { t } = useTranslation();
  const { show } = useChat();
  const found = useFound(text);
  if (!found) return <code>{text}</code>;
  return (
    <button
      type="button"
      className={styles.fileLink}
      title={t("chat.openFile", { path: found.path })}
      onClick={() => show(found.box.id, "files", found.path)}
    >
      <FileText size={13} aria-hidden />
      <code>{text}</code>
    </button>
  );
}

/** A picture that a text shows: as the chat has kept it, or else as it is in the sandbox now. */
export function WorkspacePicture({ source, alt }: { source: string; alt: string }) {
  const { t } = useTranslation();
  const { session, kept, show } = useChat();
  const found = useFound(source);
  const name = source.slice(source.lastIndexOf("/") + 1);
  const file = kept[name];
  if (!file && !found) return <span>{alt || source}</span>;
  const place = file
    ? `/v1/sessions/${session}/files/${file}?name=${encodeURIComponent(name)}`
    : contentPath(found?.box.id ?? "", found?.path ?? "");
  const picture = <Picture path={place} alt={alt || name} />;
  if (!found) return picture;
  return (
    <button
      type="button"
      className={styles.pictureLink}
      aria-label={`${alt || name}: ${t("chat.openFile", { path: found.path })}`}
      onClick={() => show(found.box.id, "files", found.path)}
    >
      {picture}
    </button>
  );
}
