import { Dialog as Base } from "@base-ui/react/dialog";
import { X } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { IconButton } from "./Button";
import styles from "./popups.module.css";

interface Props {
  open: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
  /** Buttons, at the bottom right. */
  footer?: ReactNode;
  wide?: boolean;
}

/** Something to be dealt with first. Escape and a click beside it close it. */
export function Dialog({ open, onClose, title, children, footer, wide }: Props) {
  const { t } = useTranslation();
  return (
    <Base.Root open={open} onOpenChange={(now) => !now && onClose()}>
      <Base.Portal>
        <Base.Backdrop className={styles.backdrop} />
        <Base.Popup className={[styles.dialog, wide && styles.wide].filter(Boolean).join(" ")}>
          <header className={styles.dialogHead}>
            <Base.Title className={styles.dialogTitle}>{title}</Base.Title>
            <Base.Close render={<IconButton label={t("common.close")} icon={X} size="small" />} />
          </header>
          <div className={styles.dialogBody}>{children}</div>
          {footer && <footer className={styles.dialogFoot}>{footer}</footer>}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}
