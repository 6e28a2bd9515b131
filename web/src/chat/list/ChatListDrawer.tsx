import { Dialog } from "@base-ui/react/dialog";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import styles from "../ChatsPage.module.css";

interface Props {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  children: ReactNode;
}

/** Chat list as a drawer on narrow screens. */
export function ChatListDrawer({ open, onOpenChange, children }: Props) {
  const { t } = useTranslation();
  return (
    <Dialog.Root open={open} onOpenChange={onOpenChange}>
      <Dialog.Portal>
        <Dialog.Backdrop className={styles.backdrop} />
        <Dialog.Popup className={styles.drawer} aria-label={t("chat.chats")}>
          {children}
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}
