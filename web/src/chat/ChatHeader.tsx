import {
  Download,
  Ellipsis,
  Eye,
  GitFork,
  Monitor,
  MonitorOff,
  PanelLeftOpen,
  Pencil,
  SlidersHorizontal,
  Trash2,
} from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation } from "wouter";
import { refreshSessionList } from "@/session/session-list";
import { changeSession, renameSession } from "@/session/store";
import type { SessionView } from "@/session/types";
import { Button, IconButton } from "@/ui/controls/Button";
import { Menu } from "@/ui/controls/Menu";
import { SharedBadge, useSharingMenuItems } from "@/ui/controls/Sharing";
import { showErrorToast } from "@/ui/controls/toasts";
import { formatAmount } from "@/ui/format/formats";
import { formatMoney } from "@/ui/format/money";
import styles from "./ChatsPage.module.css";
import { RenameChatField } from "./list/SessionRow";
import { SessionStateBadge } from "./list/SessionStateBadge";
import { deleteSessionWithUndo, exportSession, forkSession, sessionTitle } from "./list/session-actions";
import { SessionSettingsDialog } from "./start/SessionSettingsDialog";

interface Props {
  id: string;
  view: SessionView;
  mayWrite: boolean;
  /** Opens the chat list where it is hidden. */
  onList?: () => void;
  settings: boolean;
  onSettings: (open: boolean) => void;
  /** Sandbox panel beside the chat. `follow` shows the agent's current sandbox and view. */
  panel: { shown: boolean; toggle: () => void; follow: (() => void) | null } | null;
}

/** Title, status and menu of a chat. */
export function ChatHeader({ id, view, mayWrite, onList, settings, onSettings, panel }: Props) {
  const { t, i18n } = useTranslation();
  const [, go] = useLocation();
  const [isRenaming, setIsRenaming] = useState(false);
  const session = { id, title: view.title };
  const sharing = useSharingMenuItems(`/v1/sessions/${encodeURIComponent(id)}`, view.owned, refreshSessionList);
  const usedTokens = view.usage.input_tokens + view.usage.output_tokens;
  const about = [
    [view.agent, view.model].filter(Boolean).join(" · "),
    usedTokens > 0 && t("chat.tokens", { count: usedTokens, tokens: formatAmount(usedTokens, i18n.language) }),
    view.usage.cost ? formatMoney(view.usage.cost, i18n.language) : "",
  ].filter(Boolean);
  return (
    <header className={styles.header}>
      {onList && <IconButton icon={PanelLeftOpen} label={t("chat.openList")} onClick={onList} />}
      <div className={styles.heading}>
        {isRenaming ? (
          <RenameChatField
            title={view.title}
            onDone={(next) => {
              setIsRenaming(false);
              if (next !== null && next !== view.title) renameSession(id, next).catch(showErrorToast);
            }}
          />
        ) : (
          <div className={styles.titleRow}>
            <h1 className={styles.title}>{sessionTitle(session)}</h1>
            <SessionStateBadge state={view.state} />
            <SharedBadge owned={view.owned} />
            {mayWrite && (
              <IconButton
                size="small"
                icon={Pencil}
                label={t("chat.rename")}
                className={styles.pencil}
                onClick={() => setIsRenaming(true)}
              />
            )}
          </div>
        )}
        <p className={styles.about}>{about.join(" · ")}</p>
      </div>
      {panel?.follow && (
        <Button size="small" tone="accent" icon={Eye} onClick={panel.follow} className={styles.panelButton}>
          <span>{t("chat.seeAgent")}</span>
        </Button>
      )}
      {panel && (
        <Button
          size="small"
          tone="quiet"
          icon={panel.shown ? MonitorOff : Monitor}
          aria-pressed={panel.shown}
          onClick={panel.toggle}
          className={styles.panelButton}
        >
          <span>{t(panel.shown ? "chat.hideSandboxes" : "chat.showSandboxes")}</span>
        </Button>
      )}
      <Menu
        trigger={<IconButton icon={Ellipsis} label={t("chat.menu")} />}
        items={[
          {
            label: t("chat.settings"),
            icon: SlidersHorizontal,
            disabled: !mayWrite,
            onSelect: () => onSettings(true),
          },
          {
            label: t("chat.fork"),
            icon: GitFork,
            disabled: !mayWrite,
            onSelect: () => void forkSession(id, undefined, go),
          },
          ...(mayWrite ? sharing : []),
          { label: t("chat.export"), icon: Download, onSelect: () => void exportSession(session) },
          {
            label: t("common.delete"),
            icon: Trash2,
            tone: "danger",
            disabled: !mayWrite,
            onSelect: () => deleteSessionWithUndo(session, () => go("/chats")),
          },
        ]}
      />
      {settings && (
        <SessionSettingsDialog
          view={view}
          onClose={() => onSettings(false)}
          onChange={async (patch) => {
            if (Object.keys(patch).length) await changeSession(id, patch);
          }}
        />
      )}
    </header>
  );
}
