import { Menu as Base } from "@base-ui/react/menu";
import type { LucideIcon } from "lucide-react";
import type { ReactElement } from "react";
import styles from "./popups.module.css";

export interface MenuItem {
  label: string;
  icon?: LucideIcon;
  onSelect: () => void;
  tone?: "danger";
  disabled?: boolean;
}

/** A list of things to do that opens below `trigger`, a button. */
export function Menu({ trigger, items }: { trigger: ReactElement<Record<string, unknown>>; items: MenuItem[] }) {
  return (
    <Base.Root>
      <Base.Trigger render={trigger} />
      <Base.Portal>
        <Base.Positioner sideOffset={4} align="end" className={styles.positioner}>
          <Base.Popup className={styles.menu}>
            {items.map(({ label, icon: Icon, onSelect, tone, disabled }) => (
              <Base.Item
                key={label}
                className={[styles.item, tone && styles[tone]].filter(Boolean).join(" ")}
                onClick={onSelect}
                disabled={disabled}
              >
                {Icon && <Icon size={16} aria-hidden />}
                {label}
              </Base.Item>
            ))}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
