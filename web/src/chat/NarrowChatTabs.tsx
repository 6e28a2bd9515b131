import { Tabs as Base } from "@base-ui/react/tabs";
import { type LucideIcon, MessagesSquare, Monitor } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import tabs from "@/ui/controls/Tabs.module.css";
import styles from "./ChatsPage.module.css";

export type ChatTab = "chat" | "sandboxes";

interface Props {
  label: string;
  tab: ChatTab;
  onChange: (tab: ChatTab) => void;
  chat: ReactNode;
  /** Null without sandboxes; then the tabs are hidden. */
  sandboxes: ReactNode | null;
  unseen: Record<ChatTab, boolean>;
}

/** Tabs for narrow screens: chat or sandboxes. The hidden chat stays mounted and keeps its draft. */
export function NarrowChatTabs({ label, tab, onChange, chat, sandboxes, unseen }: Props) {
  const { t } = useTranslation();
  const value = sandboxes === null ? "chat" : tab;
  const renderTab = (id: ChatTab, text: string, Icon: LucideIcon) => (
    <Base.Tab value={id} className={tabs.tab}>
      <Icon size={15} aria-hidden />
      {text}
      {unseen[id] && value !== id && (
        <span className={styles.dot}>
          <span className="visually-hidden">{t("chat.news")}</span>
        </span>
      )}
    </Base.Tab>
  );
  return (
    <Base.Root className={tabs.root} value={value} onValueChange={(next) => onChange(next as ChatTab)}>
      <div className={tabs.bar} hidden={sandboxes === null}>
        <Base.List className={tabs.list} aria-label={label} activateOnFocus>
          {renderTab("chat", t("chat.chat"), MessagesSquare)}
          {renderTab("sandboxes", t("chat.sandboxes"), Monitor)}
        </Base.List>
      </div>
      <Base.Panel value="chat" keepMounted className={`${tabs.panel} ${styles.panel}`}>
        {chat}
      </Base.Panel>
      <Base.Panel value="sandboxes" className={`${tabs.panel} ${styles.panel}`}>
        {sandboxes}
      </Base.Panel>
    </Base.Root>
  );
}
