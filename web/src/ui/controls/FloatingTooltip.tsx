import { Tooltip as Base } from "@base-ui/react/tooltip";
import styles from "./popups.module.css";
import type { TooltipProps } from "./Tooltip";

/** Tooltip that is positioned where there is space. */
export function FloatingTooltip({ text, children }: TooltipProps) {
  return (
    <Base.Root disableHoverablePopup>
      <Base.Trigger render={children} />
      <Base.Portal>
        <Base.Positioner sideOffset={6} className={styles.positioner}>
          <Base.Popup className={styles.tooltip}>{text}</Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
