import { LoaderCircle } from "lucide-react";
import { Trans, useTranslation } from "react-i18next";
import { useConnection } from "./connection";
import styles from "./Shell.module.css";

/** Says that the server does not answer, for as long as it does not. */
export function Away({ alone }: { alone?: boolean }) {
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
