import { LoaderCircle } from "lucide-react";
import { Trans, useTranslation } from "react-i18next";
import styles from "../Shell.module.css";
import { useServerConnection } from "./server-connection";

/** Banner shown while the server is offline. */
export function OfflineBanner({ fullPage }: { fullPage?: boolean }) {
  const { t } = useTranslation();
  const isOffline = useServerConnection((state) => state.isOffline);
  if (!isOffline && !fullPage) return null;
  return (
    <div className={fullPage ? styles.offlinePage : styles.offline} role="status">
      <LoaderCircle size={16} aria-hidden className={styles.turning} />
      <span>{t("shell.away.title")}</span>
      {fullPage && (
        <p>
          <Trans i18nKey="shell.away.about" components={{ c: <code /> }} />
        </p>
      )}
    </div>
  );
}
