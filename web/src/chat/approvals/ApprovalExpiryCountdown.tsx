import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { formatDuration } from "@/ui/format/formats";
import styles from "./approvals.module.css";

const DAY = 86_400;

/** Time left to decide; counts seconds when it is short. */
export function ApprovalExpiryCountdown({ until }: { until: string }) {
  const { t } = useTranslation();
  const [now, setNow] = useState(() => Date.now());
  const secondsLeft = Math.max(0, (new Date(until).getTime() - now) / 1000);
  const soon = secondsLeft < 600;
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), soon ? 1000 : 30_000);
    return () => clearInterval(timer);
  }, [soon]);
  const text =
    secondsLeft >= 2 * DAY
      ? t("chat.days", { count: Math.ceil(secondsLeft / DAY) })
      : formatDuration(Math.floor(secondsLeft));
  return (
    <p className={soon ? styles.soon : styles.soft}>
      {secondsLeft > 0 ? t("chat.expiresIn", { time: text }) : t("chat.expired")}
    </p>
  );
}
