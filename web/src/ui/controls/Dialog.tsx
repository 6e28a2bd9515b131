import { Dialog as Base } from "@base-ui/react/dialog";
import { X } from "lucide-react";
import { type ReactNode, useRef } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "./Button";
import buttons from "./Button.module.css";
import styles from "./popups.module.css";

interface Props {
  open: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
  /** Buttons at the bottom right. */
  footer?: ReactNode;
  wide?: boolean;
}

/** Initial focus: a field, else the first button. */
const FIRST_FOCUS = "input:not([disabled]), select:not([disabled]), textarea:not([disabled]), [autofocus]";

/** Modal dialog. Escape or a click outside closes it. */
export function Dialog({ open, onClose, title, children, footer, wide }: Props) {
  const { t } = useTranslation();
  const body = useRef<HTMLDivElement>(null);
  return (
    <Base.Root open={open} onOpenChange={(isOpen) => !isOpen && onClose()}>
      <Base.Portal>
        <Base.Backdrop className={styles.backdrop} />
        <Base.Popup
          className={[styles.dialog, wide && styles.wide].filter(Boolean).join(" ")}
          initialFocus={() => body.current?.querySelector<HTMLElement>(FIRST_FOCUS) ?? true}
        >
          <header className={styles.dialogHead}>
            <Base.Title className={styles.dialogTitle}>{title}</Base.Title>
            {/* Without a tooltip, which would consume the first Escape. */}
            <Base.Close
              render={
                <Button tone="quiet" size="small" icon={X} className={buttons.square} aria-label={t("common.close")} />
              }
            />
          </header>
          <div className={styles.dialogBody} ref={body}>
            {children}
          </div>
          {footer && <footer className={styles.dialogFoot}>{footer}</footer>}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}
