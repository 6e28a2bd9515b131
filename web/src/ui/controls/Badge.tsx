import type { ReactNode } from "react";
import styles from "../layout/layout.module.css";

export type Tone = "neutral" | "good" | "warning" | "danger" | "info";

export function Badge({ tone = "neutral", children, title }: { tone?: Tone; children: ReactNode; title?: string }) {
  return (
    <span className={`${styles.badge} ${styles[tone]}`} title={title}>
      {children}
    </span>
  );
}

export function KeyCap({ children }: { children: ReactNode }) {
  return <kbd className={styles.key}>{children}</kbd>;
}
