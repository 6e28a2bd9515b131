import { Menu as Base } from "@base-ui/react/menu";
import type { MenuProps } from "./Menu";
import styles from "./popups.module.css";

/** A menu that is initially open. */
export default function OpenMenu({ trigger, items }: MenuProps) {
  return (
    <Base.Root defaultOpen>
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
