import {
  ArrowLeft,
  Download,
  ExternalLink,
  FilePlus,
  FileSearch,
  FolderPlus,
  FolderX,
  History,
  Pencil,
  Plus,
  RefreshCw,
  Trash2,
  Upload as UploadIcon,
} from "lucide-react";
import { useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import type { BoxView } from "@/session/types";
import { Button, IconButton } from "@/ui/Button";
import { Menu } from "@/ui/Menu";
import { Empty, Failed, Loaded } from "@/ui/states";
import { popOut } from "../popout";
import { useLinked } from "../useLinked";
import { type Entry, START } from "./box-files";
import { Crumbs } from "./Crumbs";
import { Drop, Uploads } from "./Drop";
import styles from "./Files.module.css";
import { NameDialog, type Naming } from "./NameDialog";
import { Preview } from "./Preview";
import { isBelow, nameOf, normal, parent } from "./paths";
import { Tree } from "./Tree";
import { rowsOf } from "./tree";
import { useBegan, useChanged, useDeeds, useListings } from "./useFiles";

interface Props {
  box: BoxView;
  active: boolean;
  alone?: boolean;
}

export function Files({ box, active, alone }: Props) {
  const { t } = useTranslation();
  const [linked, choose] = useLinked("path", active, START);
  const path = normal(linked);
  const [root, setRoot] = useState(isBelow(path, START) ? START : "/");
  const [open, setOpen] = useState<ReadonlySet<string>>(() => opened(root, path));
  // A link elsewhere in the page may name a file of which the directories are not open yet.
  const [followed, setFollowed] = useState(path);
  if (path !== followed) {
    setFollowed(path);
    const top = isBelow(path, root) ? root : "/";
    setRoot(top);
    setOpen((before) => new Set([...before, ...opened(top, path)]));
  }
  const [onlyNew, setOnlyNew] = useState(false);
  const [naming, setNaming] = useState<Naming | null>(null);
  const [edit, setEdit] = useState<string | null>(null);
  const picker = useRef<HTMLInputElement>(null);

  const { listed, refresh, error, fetching } = useListings(box, root, open, active);
  const began = useBegan(box, active);
  const changed = useChanged(box, root, began, active && onlyNew);
  const deeds = useDeeds(box, refresh);
  const keep = (entry: Entry) => !deeds.hidden.has(entry.path);
  const isNew = (entry: Entry) => began !== null && entry.type === "file" && entry.modifiedAt > began;
  const rows = rowsOf(root, open, listed, keep);
  const row = rows.find((each) => each.type === "entry" && each.entry.path === path);
  const entry = row?.type === "entry" ? row.entry : null;
  const isDirectory = path === root || entry?.type === "directory";
  const directory = isDirectory ? path : parent(path);

  const toggle = (at: string, on: boolean) => {
    const next = new Set(open);
    if (on) next.add(at);
    else next.delete(at);
    setOpen(next);
  };
  const go = (to: string) => {
    if (!isBelow(to, root)) setRoot(to);
    setOpen((before) => new Set([...before, ...opened(isBelow(to, root) ? root : to, to)]));
    choose(to);
  };
  const made = (to: string, type: Naming["type"]) => {
    if (type === "file") setEdit(to);
    go(to);
  };
  const gone = error instanceof ApiError && error.status === 404;
  return (
    <Drop onFiles={(files) => void deeds.send(directory, files)} label={nameOf(directory)}>
      <div className={styles.bar}>
        <Crumbs path={path} onGo={go} />
        <div className={styles.tools}>
          <IconButton
            size="small"
            icon={History}
            label={onlyNew ? t("computers.files.showAll") : t("computers.files.showNew")}
            aria-pressed={onlyNew}
            onClick={() => setOnlyNew(!onlyNew)}
          />
          <IconButton
            size="small"
            icon={RefreshCw}
            label={t("computers.files.refresh")}
            busy={fetching}
            onClick={refresh}
          />
          <Menu
            trigger={<IconButton size="small" icon={Plus} label={t("computers.files.add")} />}
            items={[
              { label: t("computers.files.upload"), icon: UploadIcon, onSelect: () => picker.current?.click() },
              {
                label: t("computers.files.newFile"),
                icon: FilePlus,
                onSelect: () => setNaming({ type: "file", directory }),
              },
              {
                label: t("computers.files.newDirectory"),
                icon: FolderPlus,
                onSelect: () => setNaming({ type: "directory", directory }),
              },
              {
                label: t("computers.files.fetchAll"),
                icon: Download,
                onSelect: () => void deeds.fetch(asEntry(directory)),
              },
            ]}
          />
          {!alone && (
            <IconButton
              size="small"
              icon={ExternalLink}
              label={t("computers.popout")}
              onClick={() => popOut(box.id, "files")}
            />
          )}
        </div>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          onChange={(event) => {
            void deeds.send(directory, [...(event.target.files ?? [])]);
            event.target.value = "";
          }}
        />
      </div>
      <Uploads uploads={deeds.uploads} />
      <div className={styles.panes} data-file={!isDirectory || undefined}>
        <div className={styles.left}>
          {onlyNew ? (
            <Loaded
              query={changed}
              isEmpty={(data) => data.filter(keep).length === 0}
              empty={<Empty icon={History} title={t("computers.files.nothingNew")} />}
            >
              {(data) => (
                <Tree
                  rows={data.filter(keep).map((each) => ({ type: "entry", entry: each, level: 1, open: false }))}
                  chosen={path}
                  isNew={isNew}
                  onChoose={(each) => go(each.path)}
                  onOpen={() => {}}
                />
              )}
            </Loaded>
          ) : gone ? (
            <Empty
              icon={FolderX}
              title={t("computers.files.noDirectory")}
              action={<Button onClick={() => go("/")}>{t("computers.files.showRoot")}</Button>}
            />
          ) : error ? (
            <Failed error={error} retry={refresh} />
          ) : (
            <Tree rows={rows} chosen={path} isNew={isNew} onChoose={(each) => choose(each.path)} onOpen={toggle} />
          )}
        </div>
        <div className={styles.right}>
          {isDirectory ? (
            <Directory
              entry={entry}
              onFetch={() => void deeds.fetch(entry ?? asEntry(path))}
              onRename={entry ? () => setNaming({ type: "rename", entry }) : undefined}
              onDelete={
                entry
                  ? () => {
                      deeds.discard(entry);
                      choose(parent(path));
                    }
                  : undefined
              }
            />
          ) : (
            <Preview
              key={`${box.id} ${path}`}
              box={box}
              path={path}
              active={active}
              edit={edit === path}
              isNew={entry ? isNew(entry) : false}
              back={
                <IconButton
                  className={styles.back}
                  size="small"
                  icon={ArrowLeft}
                  label={t("computers.files.back")}
                  onClick={() => choose(parent(path))}
                />
              }
              onFetch={(each) => void deeds.fetch(each)}
              onRename={(each) => setNaming({ type: "rename", entry: each })}
              onDelete={(each) => {
                deeds.discard(each);
                choose(parent(path));
              }}
              onGo={go}
            />
          )}
        </div>
      </div>
      <NameDialog
        naming={naming}
        onClose={() => setNaming(null)}
        make={deeds.make}
        rename={deeds.rename}
        onDone={made}
      />
    </Drop>
  );
}

/** Directories from the root down to a path. */
function opened(root: string, path: string): Set<string> {
  const found = new Set<string>();
  for (let at = path; at !== root && at !== "/" && isBelow(at, root); at = parent(at)) if (at !== path) found.add(at);
  return found;
}

function asEntry(path: string): Entry {
  return { path, name: nameOf(path), type: "directory", size: 0, modifiedAt: "", mode: 755 };
}

function Directory({
  entry,
  onFetch,
  onRename,
  onDelete,
}: {
  entry: Entry | null;
  onFetch: () => void;
  onRename?: () => void;
  onDelete?: () => void;
}) {
  const { t } = useTranslation();
  return (
    <Empty
      icon={FileSearch}
      title={t("computers.files.pick")}
      action={
        <div className={styles.row}>
          <Button size="small" icon={Download} onClick={onFetch}>
            {t("computers.files.fetchAll")}
          </Button>
          {entry && onRename && (
            <Button size="small" icon={Pencil} onClick={onRename}>
              {t("computers.files.rename")}
            </Button>
          )}
          {entry && onDelete && (
            <Button size="small" icon={Trash2} onClick={onDelete}>
              {t("common.delete")}
            </Button>
          )}
        </div>
      }
    >
      {t("computers.files.pickHint")}
    </Empty>
  );
}
