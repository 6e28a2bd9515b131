import { ArrowDown, ArrowUp } from "lucide-react";
import { useTranslation } from "react-i18next";
import { formatBytes } from "@/ui/format/formats";
import styles from "./network.module.css";

/** Bytes sent and received, with arrows. */
export function TransferredBytes({ sent, received }: { sent: number; received: number }) {
  const { t } = useTranslation();
  return (
    <span className={styles.bytes}>
      <span>
        <ArrowUp size={13} role="img" aria-label={t("network.sent")} /> {formatBytes(sent)}
      </span>
      <span>
        <ArrowDown size={13} role="img" aria-label={t("network.received")} /> {formatBytes(received)}
      </span>
    </span>
  );
}
