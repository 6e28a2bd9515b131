import { Tabs as Base } from "@base-ui/react/tabs";
import { type LucideIcon, MessagesSquare, Monitor } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import tabs from "@/ui/Tabs.module.css";
import styles from "./Chats.module.css";

export type Tab = "chat" | "computers";

interface Props {
  label: string;
  tab: Tab;
  onChange: (tab: Tab) => void;
  chat: ReactNode;
  /** Null while there are none; then there are no tabs either. */
  computers: ReactNode | null;
  news: Record<Tab, boolean>;
}

/** Where there is little room: the chat or its computers. The chat stays as it is meanwhile, with what is being written. */
export function NarrowTabs({ label, tab, onChange, chat, computers, news }: Props) {
  const { t } = useTranslation();
  const value = computers === null ? "chat" : tab;
  const one = (id: Tab, words: string, Icon: LucideIcon) => (
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
    <Base.Root className={tabs.root} value={value} onValueChange={(next) => onChange(next as Tab)}>
      <div className={tabs.bar} hidden={computers === null}>
        <Base.List className={tabs.list} aria-label={label} activateOnFocus>
          {one("chat", t("chat.chat"), MessagesSquare)}
          {one("computers", t("chat.computers"), Monitor)}
        </Base.List>
      </div>
      <Base.Panel value="chat" keepMounted className={`${tabs.panel} ${styles.panel}`}>
        {chat}
      </Base.Panel>
      <Base.Panel value="computers" className={`${tabs.panel} ${styles.panel}`}>
        {computers}
      </Base.Panel>
    </Base.Root>
  );
}
