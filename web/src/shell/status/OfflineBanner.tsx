import { LoaderCircle } from "lucide-react";
import { Trans, useTranslation } from "react-i18next";
import styles from "../Shell.module.css";
import { useConnection } from "./connection";

/** Banner shown while the server is offline. */
export function OfflineBanner({ alone }: { alone?: boolean }) {
  const { t } = useTranslation();
  const away = useConnection((state) => state.away);
  if (!away && !alone) return null;
  return (
    <div className={alone ? styles.awayAlone : styles.away} role="status">
      <LoaderCircle size={16} aria-hidden className={styles.turning} />
      <span>{t("shell.away.title")}</span>
      {alone && (
        <p>
          <Trans i18nKey="shell.away.about" components={{ c: <code /> }} />
        </p>
      )}
    </div>
  );
}
