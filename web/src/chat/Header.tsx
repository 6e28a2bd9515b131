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
import { listChanged } from "@/session/list";
import { change, rename } from "@/session/store";
import type { SessionView } from "@/session/types";
import { Button, IconButton } from "@/ui/Button";
import { Menu } from "@/ui/Menu";
import { money } from "@/ui/money";
import { SharedBadge, useSharing } from "@/ui/Sharing";
import { amount } from "@/ui/Time";
import { toastError } from "@/ui/toasts";
import styles from "./Chats.module.css";
import { deleteSoon, exportSession, forkSession, titleOf } from "./list/actions";
import { Rename } from "./list/SessionRow";
import { State } from "./list/State";
import { SessionSettings } from "./start/SessionSettings";

interface Props {
  id: string;
  view: SessionView;
  mayWrite: boolean;
  /** Opens the list, where it is not there already. */
  onList?: () => void;
  settings: boolean;
  onSettings: (open: boolean) => void;
  /** The computers beside the thread. `follow` shows where the agent works, if that is elsewhere. */
  panel: { shown: boolean; toggle: () => void; follow: (() => void) | null } | null;
}

/** What this chat is, and what can be done with it. */
export function Header({ id, view, mayWrite, onList, settings, onSettings, panel }: Props) {
  const { t, i18n } = useTranslation();
  const [, go] = useLocation();
  const [naming, setNaming] = useState(false);
  const session = { id, title: view.title };
  const sharing = useSharing(`/v1/sessions/${encodeURIComponent(id)}`, view.owned, listChanged);
  const used = view.usage.input_tokens + view.usage.output_tokens;
  const about = [
    [view.agent, view.model].filter(Boolean).join(" · "),
    used > 0 && t("chat.tokens", { count: used, tokens: amount(used, i18n.language) }),
    view.usage.cost ? money(view.usage.cost, i18n.language) : "",
  ].filter(Boolean);
  return (
    <header className={styles.header}>
      {onList && <IconButton icon={PanelLeftOpen} label={t("chat.openList")} onClick={onList} />}
      <div className={styles.heading}>
        {naming ? (
          <Rename
            title={view.title}
            onDone={(next) => {
              setNaming(false);
              if (next !== null && next !== view.title) rename(id, next).catch(toastError);
            }}
          />
        ) : (
          <div className={styles.titleRow}>
            <h1 className={styles.title}>{titleOf(session)}</h1>
            <State state={view.state} />
            <SharedBadge owned={view.owned} />
            {mayWrite && (
              <IconButton
                size="small"
                icon={Pencil}
                label={t("chat.rename")}
                className={styles.pencil}
                onClick={() => setNaming(true)}
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
          <span>{t(panel.shown ? "chat.hideComputers" : "chat.showComputers")}</span>
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
            onSelect: () => deleteSoon(session, () => go("/chats")),
          },
        ]}
      />
      {settings && (
        <SessionSettings
          view={view}
          onClose={() => onSettings(false)}
          onChange={async (patch) => {
            if (Object.keys(patch).length) await change(id, patch);
          }}
        />
      )}
    </header>
  );
}
