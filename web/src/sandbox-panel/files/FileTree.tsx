import { useVirtualizer } from "@tanstack/react-virtual";
import {
  ChevronDown,
  ChevronRight,
  File,
  FileQuestion,
  Folder,
  FolderOpen,
  Link2,
  type LucideIcon,
} from "lucide-react";
import { useEffect, useId, useRef } from "react";
import { useTranslation } from "react-i18next";
import styles from "./FilesView.module.css";
import { type FileTreeRow, fileTreeKeyMove } from "./file-tree-rows";
import type { FileEntry } from "./sandbox-files";
import { safeDisplayName } from "./sandbox-paths";

interface Props {
  rows: FileTreeRow[];
  chosen: string;
  /** Whether an entry was written since the sandbox started. */
  isNew: (entry: FileEntry) => boolean;
  onChoose: (entry: FileEntry) => void;
  onOpen: (path: string, open: boolean) => void;
}

const ROW_HEIGHT = 30;

/** Tree of directories and files with one tab stop; only visible rows are rendered. */
export function FileTree({ rows, chosen, isNew, onChoose, onOpen }: Props) {
  const { t } = useTranslation();
  const scroll = useRef<HTMLDivElement>(null);
  const id = useId();
  const at = rows.findIndex((row) => row.type === "entry" && row.entry.path === chosen);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
  });
  const { scrollToIndex } = virtual;
  const scrollTo = useRef(scrollToIndex);
  scrollTo.current = scrollToIndex;
  useEffect(() => {
    if (at >= 0) scrollTo.current(at, { align: "auto" });
  }, [at]);
  const press = (event: React.KeyboardEvent) => {
    const row = rows[at];
    if (event.key === "Enter" && row?.type === "entry") {
      event.preventDefault();
      if (row.entry.type === "directory") onOpen(row.entry.path, !row.open);
      return;
    }
    const move = fileTreeKeyMove(rows, at, event.key);
    if (!move) return;
    event.preventDefault();
    if ("open" in move) onOpen(move.open, true);
    else if ("close" in move) onOpen(move.close, false);
    else {
      const target = rows[move.to];
      if (target?.type === "entry") onChoose(target.entry);
    }
  };
  return (
    <div
      ref={scroll}
      className={styles.tree}
      role="tree"
      tabIndex={0}
      aria-label={t("sandboxPanel.files.tree")}
      aria-activedescendant={at >= 0 ? `${id}-${at}` : undefined}
      onKeyDown={press}
    >
      <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {virtual.getVirtualItems().map(({ index, start }) => {
          const row = rows[index];
          if (!row) return null;
          const style = { transform: `translateY(${start}px)`, paddingLeft: 6 + (row.level - 1) * 16 };
          if (row.type === "note")
            return (
              <div key={index} className={styles.note} style={style}>
                {t(`sandboxPanel.files.rows.${row.note}`)}
              </div>
            );
          const { entry, open } = row;
          const Icon = entryIcon(entry, open);
          const directory = entry.type === "directory";
          return (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the tree has the focus and handles all keys.
            // biome-ignore lint/a11y/useFocusableInteractive: the tree names its active row.
            <div
              key={index}
              id={`${id}-${index}`}
              className={styles.entry}
              style={style}
              role="treeitem"
              aria-level={row.level}
              aria-selected={index === at}
              aria-expanded={directory ? open : undefined}
              onClick={() => {
                onChoose(entry);
                if (directory) onOpen(entry.path, !open);
              }}
            >
              <span className={styles.fold} aria-hidden>
                {directory && (open ? <ChevronDown size={14} /> : <ChevronRight size={14} />)}
              </span>
              <Icon size={15} aria-hidden className={directory ? styles.folder : undefined} />
              <bdi className={styles.fileName}>{safeDisplayName(entry.name)}</bdi>
              {isNew(entry) && (
                <span className={styles.new} title={t("sandboxPanel.files.newHere")}>
                  <span className="visually-hidden">{t("sandboxPanel.files.newHere")}</span>
                </span>
              )}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function entryIcon(entry: FileEntry, open: boolean): LucideIcon {
  if (entry.type === "directory") return open ? FolderOpen : Folder;
  if (entry.type === "symlink") return Link2;
  return entry.type === "file" ? File : FileQuestion;
}
