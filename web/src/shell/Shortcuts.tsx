import { useTranslation } from "react-i18next";
import { Key } from "@/ui/Badge";
import { Dialog } from "@/ui/Dialog";
import { PLACES } from "./places";
import styles from "./Shell.module.css";
import { GOING, isApple } from "./shortcuts";

/** The name of the page a path leads to. */
function nameOf(path: string): string {
  return `shell.places.${PLACES.find((place) => place.path === path)?.id ?? "home"}`;
}

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
        <dt>
          <Key>A</Key> / <Key>R</Key>
        </dt>
        <dd>{t("shell.shortcuts.decide")}</dd>
        <dt>
          <Key>Esc</Key> <Key>Esc</Key>
        </dt>
        <dd>{t("shell.shortcuts.stop")}</dd>
        {Object.entries(GOING).map(([letter, path]) => (
          <div key={letter} className={styles.shortcut}>
            <dt>
              <Key>G</Key> <Key>{letter.toUpperCase()}</Key>
            </dt>
            <dd>{t(nameOf(path))}</dd>
          </div>
        ))}
      </dl>
      <p className={styles.soft}>{t("shell.shortcuts.about")}</p>
    </Dialog>
  );
}
