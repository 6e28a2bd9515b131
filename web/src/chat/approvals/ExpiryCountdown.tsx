import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { formatDuration } from "@/ui/format/formats";
import styles from "./approvals.module.css";

const DAY = 86_400;

/** Time left to decide; counts seconds when it is short. */
export function ExpiryCountdown({ until }: { until: string }) {
  const { t } = useTranslation();
  const [now, setNow] = useState(() => Date.now());
  const left = Math.max(0, (new Date(until).getTime() - now) / 1000);
  const soon = left < 600;
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), soon ? 1000 : 30_000);
    return () => clearInterval(timer);
  }, [soon]);
  const text = left >= 2 * DAY ? t("chat.days", { count: Math.ceil(left / DAY) }) : formatDuration(Math.floor(left));
  return (
    <p className={soon ? styles.soon : styles.soft}>
      {left > 0 ? t("chat.expiresIn", { time: text }) : t("chat.expired")}
    </p>
  );
}
