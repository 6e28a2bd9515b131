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
  /** What they are tabs of, read aloud. */
  label: string;
  tabs: Tab<Id>[];
  value: Id;
  onChange: (id: Id) => void;
  /** What is shown below them: the panel of `value`. */
  children: ReactNode;
  /** Beside the tabs, at the right. */
  actions?: ReactNode;
}

/** Tabs, and the panel of the chosen one, which fills the rest. */
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
