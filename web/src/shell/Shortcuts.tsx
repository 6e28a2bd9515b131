import { useTranslation } from "react-i18next";
import { Key } from "@/ui/Badge";
import { Dialog } from "@/ui/Dialog";
import styles from "./Shell.module.css";
import { GOING, isApple } from "./shortcuts";

const NAMES: Record<string, string> = { "/": "home", "/screens": "screens" };

/** All keys that work everywhere. */
export function Shortcuts({ open, onClose }: { open: boolean; onClose: () => void }) {
  const { t } = useTranslation();
  return (
    <Dialog open={open} onClose={onClose} title={t("shell.shortcuts.title")}>
      <dl className={styles.shortcuts}>
        <dt>
          <Key>{isApple ? "⌘" : "Ctrl"}</Key> <Key>K</Key>
        </dt>
        <dd>{t("shell.shortcuts.palette")}</dd>
        <dt>
          <Key>?</Key>
        </dt>
        <dd>{t("shell.shortcuts.this")}</dd>
        {Object.entries(GOING).map(([letter, path]) => (
          <div key={letter} className={styles.shortcut}>
            <dt>
              <Key>G</Key> <Key>{letter.toUpperCase()}</Key>
            </dt>
            <dd>{t(`shell.places.${NAMES[path] ?? path.slice(1)}`)}</dd>
          </div>
        ))}
      </dl>
      <p className={styles.soft}>{t("shell.shortcuts.about")}</p>
    </Dialog>
  );
}
