/** What lists and pages show while they have nothing else to show. */

import type { UseQueryResult } from "@tanstack/react-query";
import { CircleAlert, Inbox, type LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { ApiError, PROVIDER_KEY } from "@/api/client";
import { Button } from "./Button";
import { describe } from "./describe";
import styles from "./pieces.module.css";

interface EmptyProps {
  icon?: LucideIcon;
  title: string;
  /** What to do about it. */
  children?: ReactNode;
  action?: ReactNode;
}

export function Empty({ icon: Icon = Inbox, title, children, action }: EmptyProps) {
  return (
    <div className={styles.state}>
      <Icon size={28} aria-hidden />
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {action}
    </div>
  );
}

/** What went wrong, and what to do next. */
export function Failed({ error, retry }: { error: unknown; retry?: () => void }) {
  const { t } = useTranslation();
  const known = error instanceof ApiError ? error : null;
  const next = known ? t(`errors.${nextStep(known)}`) : t("errors.unexpected");
  return (
    <div className={styles.state} role="alert">
      <CircleAlert size={28} aria-hidden />
      <h2>{known?.unreachable ? t("errors.noServer") : describe(error)}</h2>
      <p>{next}</p>
      {known?.requestId && <p className={styles.fine}>{t("errors.request", { id: known.requestId })}</p>}
      {retry && <Button onClick={retry}>{t("common.retry")}</Button>}
    </div>
  );
}

function nextStep(error: ApiError): string {
  if (error.unreachable) return "startServer";
  if (error.code === PROVIDER_KEY) return "providerKey";
  if (error.status === 401) return "signIn";
  if (error.status === 403) return "askForScope";
  if (error.status === 404) return "gone";
  if (error.status === 429 || error.status === 503) return "later";
  return error.status >= 500 ? "serverLog" : "fix";
}

/** Grey bars in place of what is on its way. */
export function Loading({ rows = 4 }: { rows?: number }) {
  const { t } = useTranslation();
  return (
    <div className={styles.loading} role="status" aria-label={t("common.loading")}>
      {Array.from({ length: rows }, (_, row) => (
        <div key={row} className={styles.bar} />
      ))}
    </div>
  );
}

interface LoadedProps<T> {
  query: UseQueryResult<T>;
  rows?: number;
  /** Shown if `isEmpty` says so. */
  empty?: ReactNode;
  isEmpty?: (data: T) => boolean;
  children: (data: T) => ReactNode;
}

/** What a query brings, or why it brings nothing. Data that is there stays while newer is asked for. */
export function Loaded<T>({ query, rows, empty, isEmpty, children }: LoadedProps<T>) {
  if (query.data !== undefined) {
    if (empty !== undefined && isEmpty?.(query.data)) return <>{empty}</>;
    return <>{children(query.data)}</>;
  }
  if (query.error) return <Failed error={query.error} retry={() => void query.refetch()} />;
  return <Loading rows={rows} />;
}
