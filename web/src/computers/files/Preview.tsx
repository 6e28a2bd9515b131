import { useQuery } from "@tanstack/react-query";
import { Download, Link2, Pencil, TextCursorInput, Trash2 } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import type { BoxView } from "@/session/types";
import { Badge } from "@/ui/Badge";
import { Button, IconButton } from "@/ui/Button";
import { Diff } from "@/ui/Diff";
import { Empty, Failed, Loading } from "@/ui/states";
import { size, Time } from "@/ui/Time";
import { committed, type Entry, info, read } from "./box-files";
import { asText } from "./bytes";
import { Editor } from "./Editor";
import styles from "./Files.module.css";
import { shapeOf } from "./kinds";
import { shown } from "./paths";
import { Bytes, Content, TextLines } from "./shapes";

export const FIRST = 256 * 1024;

interface Props {
  box: BoxView;
  path: string;
  active: boolean;
  /** Begin with its text to be changed. */
  edit: boolean;
  /** Whether it was written since the box began. */
  isNew: boolean;
  /** Leads back to the tree where there is room for one of them only. */
  back: ReactNode;
  onFetch: (entry: Entry) => void;
  onRename: (entry: Entry) => void;
  onDelete: (entry: Entry) => void;
  onGo: (path: string) => void;
}

type Mode = "view" | "source" | "changes" | "edit";

/** One file: what it is, what is in it, and what can be done with it. */
export function Preview({ box, path, active, edit, isNew, back, onFetch, onRename, onDelete, onGo }: Props) {
  const { t } = useTranslation();
  const [mode, setMode] = useState<Mode>(edit ? "edit" : "view");
  const query = useQuery({
    queryKey: ["computers", box.id, "file", path],
    queryFn: async ({ signal }) => {
      const entry = await info(box.id, path, signal);
      const head = await read(box.id, path, FIRST, signal);
      const whole = head.length < FIRST;
      return { entry, head, whole, text: asText(head, whole) };
    },
    enabled: active,
    staleTime: 10_000,
    // What is being changed must not change below one's hands; saving looks for itself.
    refetchOnWindowFocus: mode !== "edit",
  });
  const old = useQuery({
    queryKey: ["computers", box.id, "file", path, "committed", query.data?.entry.modifiedAt],
    queryFn: ({ signal }) => committed(box.id, path, signal),
    enabled: active && isNew && query.data?.text !== null && query.data?.whole === true,
    staleTime: 60_000,
    retry: false,
  });
  const { data } = query;
  if (!data) {
    if (query.error instanceof ApiError && query.error.status === 400)
      return (
        <Empty
          icon={Link2}
          title={t("computers.files.noFile")}
          action={<Button onClick={() => onGo(path)}>{t("computers.files.openIt")}</Button>}
        >
          {t("computers.files.noFileHint")}
        </Empty>
      );
    return query.error ? <Failed error={query.error} retry={() => void query.refetch()} /> : <Loading />;
  }
  const { entry, text, head, whole } = data;
  const shape = text === null && !["image", "pdf", "audio", "video"].includes(shapeOf(path)) ? "bytes" : shapeOf(path);
  const rich = shape !== "text" && shape !== "bytes";
  const differs = typeof old.data === "string" && old.data !== text;
  const modes: Mode[] = [
    "view",
    ...(rich && text !== null ? (["source"] as const) : []),
    ...(differs ? (["changes"] as const) : []),
  ];
  const editable = text !== null && whole && entry.type === "file";
  return (
    <article className={styles.preview} aria-label={shown(entry.name)}>
      <header className={styles.fileHead}>
        {back}
        <div className={styles.fileTitle}>
          <h2>
            <bdi>{shown(entry.name)}</bdi>{" "}
            {isNew && (
              <Badge tone="good">
                {t(`computers.files.${typeof old.data !== "string" ? "either" : old.data === "" ? "new" : "changed"}`)}
              </Badge>
            )}
          </h2>
          <p className={styles.soft}>
            {size(entry.size)} · <Time at={entry.modifiedAt} />
          </p>
        </div>
        <div className={styles.tools}>
          {modes.length > 1 &&
            mode !== "edit" &&
            modes.map((each) => (
              <Button
                key={each}
                size="small"
                tone="quiet"
                aria-pressed={mode === each}
                className={styles.mode}
                onClick={() => setMode(each)}
              >
                {t(`computers.files.modes.${each}`)}
              </Button>
            ))}
          {editable && mode !== "edit" && (
            <IconButton size="small" icon={Pencil} label={t("computers.files.edit")} onClick={() => setMode("edit")} />
          )}
          <IconButton size="small" icon={Download} label={t("common.download")} onClick={() => onFetch(entry)} />
          <IconButton
            size="small"
            icon={TextCursorInput}
            label={t("computers.files.rename")}
            onClick={() => onRename(entry)}
          />
          <IconButton size="small" icon={Trash2} label={t("common.delete")} onClick={() => onDelete(entry)} />
        </div>
      </header>
      {mode === "edit" && editable ? (
        <Editor
          sandbox={box.id}
          entry={entry}
          text={text}
          onClose={() => setMode("view")}
          onSaved={() => void query.refetch()}
        />
      ) : (
        <div className={styles.content}>
          {!whole && text !== null && (
            <p className={styles.cut}>
              {t("computers.files.cut", { shown: size(head.length), size: size(entry.size) })}
            </p>
          )}
          {mode === "changes" && typeof old.data === "string" && text !== null ? (
            <div className={styles.padded}>
              <Diff before={old.data} after={text} label={shown(path)} />
            </div>
          ) : mode === "source" && text !== null ? (
            <TextLines text={text} />
          ) : shape === "bytes" ? (
            <Bytes head={head} size={entry.size} />
          ) : (
            <Content box={box} entry={entry} shape={shape} text={text} />
          )}
        </div>
      )}
    </article>
  );
}
