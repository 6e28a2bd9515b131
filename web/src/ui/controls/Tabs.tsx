import { Tabs as Base } from "@base-ui/react/tabs";
import type { LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import styles from "./Tabs.module.css";

export interface Tab<Id extends string> {
  id: Id;
  label: string;
  icon?: LucideIcon;
  badge?: ReactNode;
}

interface Props<Id extends string> {
  /** Accessible name of the tab list. */
  label: string;
  tabs: Tab<Id>[];
  value: Id;
  onChange: (id: Id) => void;
  /** Content of the tab `value`. */
  children: ReactNode;
  /** Actions at the right of the tabs. */
  actions?: ReactNode;
}

/** Tabs, and the panel of the chosen one. */
export function Tabs<Id extends string>({ label, tabs, value, onChange, children, actions }: Props<Id>) {
  return (
    <Base.Root className={styles.root} value={value} onValueChange={(id) => onChange(id as Id)}>
      <div className={styles.bar}>
        <Base.List className={styles.list} aria-label={label} activateOnFocus>
          {tabs.map(({ id, label: text, icon: Icon, badge }) => (
            <Base.Tab key={id} value={id} className={styles.tab}>
              {Icon && <Icon size={15} aria-hidden />}
              {text}
              {badge}
            </Base.Tab>
          ))}
        </Base.List>
        {actions}
      </div>
      <Base.Panel value={value} className={styles.panel}>
        {children}
      </Base.Panel>
    </Base.Root>
  );
}
