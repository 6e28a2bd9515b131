/** Empty, loading and error states of lists and pages. */

import type { UseQueryResult } from "@tanstack/react-query";
import { CircleAlert, Inbox, type LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { ApiError, PROVIDER_KEY_REFUSED } from "@/api/client";
import { Button } from "../controls/Button";
import { errorText } from "../format/error-text";
import styles from "./layout.module.css";

interface EmptyStateProps {
  icon?: LucideIcon;
  title: string;
  /** Button that resolves the state. */
  children?: ReactNode;
  action?: ReactNode;
}

export function EmptyState({ icon: Icon = Inbox, title, children, action }: EmptyStateProps) {
  return (
    <div className={styles.state}>
      <Icon size={28} aria-hidden />
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {action}
    </div>
  );
}

/** Text of the server behind a translated error, folded. */
export function ServerDetails({ text }: { text: string }) {
  const { t } = useTranslation();
  return (
    <details className={styles.details}>
      <summary>{t("shell.provider.details")}</summary>
      <p lang="en">{text}</p>
    </details>
  );
}

/** Error with advice, and a retry button. */
export function ErrorState({ error, retry }: { error: unknown; retry?: () => void }) {
  const { t } = useTranslation();
  const apiError = error instanceof ApiError ? error : null;
  if (apiError?.code === PROVIDER_KEY_REFUSED)
    return (
      <div className={styles.state} role="alert">
        <CircleAlert size={28} aria-hidden />
        <p>{errorText(error)}</p>
        <ServerDetails text={apiError.message} />
        {retry && <Button onClick={retry}>{t("common.retry")}</Button>}
      </div>
    );
  const next = apiError ? t(`errors.${errorAdvice(apiError)}`) : t("errors.unexpected");
  return (
    <div className={styles.state} role="alert">
      <CircleAlert size={28} aria-hidden />
      <h2>{apiError?.unreachable ? t("errors.noServer") : errorText(error)}</h2>
      <p>{next}</p>
      {apiError?.requestId && <p className={styles.fine}>{t("errors.request", { id: apiError.requestId })}</p>}
      {retry && <Button onClick={retry}>{t("common.retry")}</Button>}
    </div>
  );
}

function errorAdvice(error: ApiError): string {
  if (error.unreachable) return "startServer";
  if (error.status === 401) return "signIn";
  if (error.status === 403) return "askForScope";
  if (error.status === 404) return "gone";
  if (error.status === 429 || error.status === 503) return "later";
  return error.status >= 500 ? "serverLog" : "fix";
}

/** Grey placeholder bars. */
export function LoadingBars({ rows = 4 }: { rows?: number }) {
  const { t } = useTranslation();
  return (
    <div className={styles.loading} role="status" aria-label={t("common.loading")}>
      {Array.from({ length: rows }, (_, row) => (
        <div key={row} className={styles.bar} />
      ))}
    </div>
  );
}

interface QueryResultProps<T> {
  query: UseQueryResult<T>;
  rows?: number;
  /** Shown if `isEmpty` returns true. */
  empty?: ReactNode;
  isEmpty?: (data: T) => boolean;
  children: (data: T) => ReactNode;
}

/** Result of a query, or its loading or error state. Old data stays visible while it is refetched. */
export function QueryResult<T>({ query, rows, empty, isEmpty, children }: QueryResultProps<T>) {
  if (query.data !== undefined) {
    if (empty !== undefined && isEmpty?.(query.data)) return <>{empty}</>;
    return <>{children(query.data)}</>;
  }
  if (query.error) return <ErrorState error={query.error} retry={() => void query.refetch()} />;
  return <LoadingBars rows={rows} />;
}
