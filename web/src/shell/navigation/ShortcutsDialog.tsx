import { useTranslation } from "react-i18next";
import { KeyCap } from "@/ui/controls/Badge";
import { Dialog } from "@/ui/controls/Dialog";
import styles from "../Shell.module.css";
import { GO_TO_KEYS, isApple, NEW_CHAT_KEY, NEXT_CHAT_KEY, PREVIOUS_CHAT_KEY } from "./keyboard-shortcuts";
import { CONSOLE_PAGES } from "./pages";

/** Name of the page at a path. */
function pageNameKey(path: string): string {
  return `shell.places.${CONSOLE_PAGES.find((page) => page.path === path)?.id ?? "home"}`;
}

/** Dialog with all global shortcuts. */
export function ShortcutsDialog({ open, onClose }: { open: boolean; onClose: () => void }) {
  const { t } = useTranslation();
  return (
    <Dialog open={open} onClose={onClose} title={t("shell.shortcuts.title")}>
      <dl className={styles.shortcuts}>
        <dt>
          <KeyCap>{isApple ? "⌘" : "Ctrl"}</KeyCap> <KeyCap>K</KeyCap>
        </dt>
        <dd>{t("shell.shortcuts.palette")}</dd>
        <dt>
          <KeyCap>?</KeyCap>
        </dt>
        <dd>{t("shell.shortcuts.this")}</dd>
        <dt>
          <KeyCap>A</KeyCap> / <KeyCap>R</KeyCap>
        </dt>
        <dd>{t("shell.shortcuts.decide")}</dd>
        <dt>
          <KeyCap>Esc</KeyCap> <KeyCap>Esc</KeyCap>
        </dt>
        <dd>{t("shell.shortcuts.stop")}</dd>
        <dt>
          <KeyCap>{NEW_CHAT_KEY.toUpperCase()}</KeyCap>
        </dt>
        <dd>{t("shell.shortcuts.newChat")}</dd>
        <dt>
          <KeyCap>{NEXT_CHAT_KEY.toUpperCase()}</KeyCap> / <KeyCap>{PREVIOUS_CHAT_KEY.toUpperCase()}</KeyCap>
        </dt>
        <dd>{t("shell.shortcuts.otherChat")}</dd>
        {Object.entries(GO_TO_KEYS).map(([key, path]) => (
          <div key={key} className={styles.shortcut}>
            <dt>
              <KeyCap>G</KeyCap> <KeyCap>{key.toUpperCase()}</KeyCap>
            </dt>
            <dd>{t(pageNameKey(path))}</dd>
          </div>
        ))}
      </dl>
      <p className={styles.soft}>{t("shell.shortcuts.about")}</p>
    </Dialog>
  );
}
