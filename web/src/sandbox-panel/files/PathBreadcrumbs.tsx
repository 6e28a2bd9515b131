import { ChevronRight, HardDrive } from "lucide-react";
import { Fragment } from "react";
import { useTranslation } from "react-i18next";
import styles from "./FilesView.module.css";
import { ancestorPaths, baseName, safeDisplayName } from "./sandbox-paths";

/** Path as clickable segments. */
export function PathBreadcrumbs({ path, onGo }: { path: string; onGo: (path: string) => void }) {
  const { t } = useTranslation();
  const steps = ancestorPaths(path);
  return (
    <nav className={styles.crumbs} aria-label={t("sandboxPanel.files.way")}>
      {steps.map((step, at) => (
        <Fragment key={step}>
          {at > 1 && <ChevronRight size={13} aria-hidden className={styles.soft} />}
          <button
            type="button"
            aria-current={at === steps.length - 1 ? "location" : undefined}
            aria-label={at === 0 ? t("sandboxPanel.files.root") : undefined}
            onClick={() => onGo(step)}
          >
            {at === 0 ? <HardDrive size={14} aria-hidden /> : <bdi>{safeDisplayName(baseName(step))}</bdi>}
          </button>
        </Fragment>
      ))}
    </nav>
  );
}
