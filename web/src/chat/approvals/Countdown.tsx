import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { duration } from "@/ui/Time";
import styles from "./approvals.module.css";

const DAY = 86_400;

/** How long there is to decide; by the second once it gets short. */
export function Countdown({ until }: { until: string }) {
  const { t } = useTranslation();
  const [now, setNow] = useState(() => Date.now());
  const left = Math.max(0, (new Date(until).getTime() - now) / 1000);
  const soon = left < 600;
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), soon ? 1000 : 30_000);
    return () => clearInterval(timer);
  }, [soon]);
  const text = left >= 2 * DAY ? t("chat.days", { count: Math.ceil(left / DAY) }) : duration(Math.floor(left));
  return (
    <p className={soon ? styles.soon : styles.soft}>
      {left > 0 ? t("chat.expiresIn", { time: text }) : t("chat.expired")}
    </p>
  );
}
