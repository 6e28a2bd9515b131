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
  news: Record<ChatTab, boolean>;
}

/** Tabs for narrow screens: chat or sandboxes. The hidden chat stays mounted and keeps its draft. */
export function NarrowTabs({ label, tab, onChange, chat, sandboxes, news }: Props) {
  const { t } = useTranslation();
  const value = sandboxes === null ? "chat" : tab;
  const one = (id: ChatTab, words: string, Icon: LucideIcon) => (
    <Base.Tab value={id} className={tabs.tab}>
      <Icon size={15} aria-hidden />
      {words}
      {news[id] && value !== id && (
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
          {one("chat", t("chat.chat"), MessagesSquare)}
          {one("sandboxes", t("chat.sandboxes"), Monitor)}
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
