import { Component, type ErrorInfo, type ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { Button } from "@/ui/controls/Button";
import { EmptyState } from "@/ui/layout/query-states";
import styles from "./Shell.module.css";

interface Props {
  children: ReactNode;
  /** Current path: navigating away resets the error. */
  location?: string;
}

/** Shows an error instead of a broken page, without affecting the rest. */
export class ErrorBoundary extends Component<Props, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error: error ?? new Error("unknown") };
  }

  override componentDidCatch(error: unknown, info: ErrorInfo): void {
    console.error(error, info.componentStack);
  }

  override componentDidUpdate(before: Props): void {
    if (this.state.error && before.location !== this.props.location) this.setState({ error: null });
  }

  override render(): ReactNode {
    if (this.state.error === null) return this.props.children;
    return <BrokenPage error={this.state.error} onRetry={() => this.setState({ error: null })} />;
  }
}

/** Whether a code chunk could not be loaded, as after an upgrade. */
export function isMissingChunkError(error: unknown): boolean {
  const text = error instanceof Error ? error.message : String(error);
  return /dynamically imported module|importing a module script|unable to preload|loading (css )?chunk/i.test(text);
}

function BrokenPage({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  const { t } = useTranslation();
  const reload = (
    <Button tone="accent" onClick={() => window.location.reload()}>
      {t("shell.broken.reload")}
    </Button>
  );
  if (isMissingChunkError(error)) {
    return (
      <div role="alert">
        <EmptyState title={t("shell.broken.upgraded")} action={reload}>
          {t("shell.broken.upgradedAbout")}
        </EmptyState>
      </div>
    );
  }
  const details = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return (
    <div role="alert" className={styles.broken}>
      <EmptyState
        title={t("shell.broken.title")}
        action={
          <div className={styles.choices}>
            <Button onClick={onRetry}>{t("common.retry")}</Button>
            {reload}
          </div>
        }
      >
        {t("shell.broken.about")}
      </EmptyState>
      <details>
        <summary>{t("shell.broken.details")}</summary>
        <CodeBlock text={details} label={t("shell.broken.details")} fileName="console-error.txt" wrap />
      </details>
    </div>
  );
}
