import { ChevronRight, HardDrive } from "lucide-react";
import { Fragment } from "react";
import { useTranslation } from "react-i18next";
import styles from "./Files.module.css";
import { nameOf, shown, trail } from "./paths";

/** The way to a path; each step of it can be gone to. */
export function Crumbs({ path, onGo }: { path: string; onGo: (path: string) => void }) {
  const { t } = useTranslation();
  const steps = trail(path);
  return (
    <nav className={styles.crumbs} aria-label={t("computers.files.way")}>
      {steps.map((step, at) => (
        <Fragment key={step}>
          {at > 1 && <ChevronRight size={13} aria-hidden className={styles.soft} />}
          <button
            type="button"
            aria-current={at === steps.length - 1 ? "location" : undefined}
            aria-label={at === 0 ? t("computers.files.root") : undefined}
            onClick={() => onGo(step)}
          >
            {at === 0 ? <HardDrive size={14} aria-hidden /> : <bdi>{shown(nameOf(step))}</bdi>}
          </button>
        </Fragment>
      ))}
    </nav>
  );
}
