import { Download, Ellipsis, GitFork, Pencil, Trash2 } from "lucide-react";
import { useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import type { Schema } from "@/api/types";
import { refreshSessionList } from "@/session/session-list";
import { renameSession } from "@/session/store";
import { IconButton } from "@/ui/controls/Button";
import { Menu } from "@/ui/controls/Menu";
import { SharedBadge, useSharingMenuItems } from "@/ui/controls/Sharing";
import { showErrorToast } from "@/ui/controls/toasts";
import { RelativeTime } from "@/ui/format/formats";
import styles from "./list.module.css";
import { SessionStateBadge } from "./SessionStateBadge";
import { deleteSessionWithUndo, exportSession, forkSession, sessionTitle } from "./session-actions";

interface Props {
  session: Schema<"Session">;
  current: boolean;
  mayWrite: boolean;
  onLeave: () => void;
}

export function SessionRow({ session, current, mayWrite, onLeave }: Props) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const [isRenaming, setIsRenaming] = useState(false);
  const title = sessionTitle(session);
  const sharing = useSharingMenuItems(`/v1/sessions/${encodeURIComponent(session.id)}`, session, refreshSessionList);
  if (isRenaming)
    return (
      <li className={styles.item}>
        <RenameChatField
          title={session.title}
          onDone={(next) => {
            setIsRenaming(false);
            if (next !== null && next !== session.title) renameSession(session.id, next).catch(showErrorToast);
          }}
        />
      </li>
    );
  return (
    <li className={styles.item} data-current={current}>
      <Link href={`/chats/${session.id}`} className={styles.link} aria-current={current ? "page" : undefined}>
        <span className={styles.title}>{title}</span>
        <span className={styles.about}>
          <RelativeTime at={session.changed_at} />
          <SessionStateBadge state={session.state} />
          <SharedBadge owned={session} />
        </span>
      </Link>
      <span className={styles.menu}>
        <Menu
          trigger={<IconButton size="small" icon={Ellipsis} label={t("chat.moreAbout", { title })} />}
          items={[
            { label: t("chat.rename"), icon: Pencil, disabled: !mayWrite, onSelect: () => setIsRenaming(true) },
            {
              label: t("chat.fork"),
              icon: GitFork,
              disabled: !mayWrite,
              onSelect: () => void forkSession(session.id, undefined, go),
            },
            ...(mayWrite ? sharing : []),
            { label: t("chat.export"), icon: Download, onSelect: () => void exportSession(session) },
            {
              label: t("common.delete"),
              icon: Trash2,
              tone: "danger",
              disabled: !mayWrite,
              onSelect: () => deleteSessionWithUndo(session, current ? onLeave : undefined),
            },
          ]}
        />
      </span>
    </li>
  );
}

/** Title editor: Enter and blur save, Esc cancels. */
export function RenameChatField({ title, onDone }: { title: string; onDone: (title: string | null) => void }) {
  const { t } = useTranslation();
  const [text, setText] = useState(title);
  const over = useRef(false);
  const done = (value: string | null) => {
    if (over.current) return;
    over.current = true;
    onDone(value?.trim() ? value.trim() : null);
  };
  return (
    <input
      // biome-ignore lint/a11y/noAutofocus: the user asked to type a new title.
      autoFocus
      className={styles.rename}
      aria-label={t("chat.title")}
      maxLength={200}
      value={text}
      onFocus={(event) => event.target.select()}
      onChange={(event) => setText(event.target.value)}
      onBlur={() => done(text)}
      onKeyDown={(event) => {
        if (event.key === "Enter" && !event.nativeEvent.isComposing) done(text);
        if (event.key === "Escape") {
          event.stopPropagation();
          done(null);
        }
      }}
    />
  );
}
