import { Component, type ErrorInfo, type ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Empty } from "@/ui/states";
import styles from "./Shell.module.css";

interface Props {
  children: ReactNode;
  /** Where we are: going elsewhere gives the page another chance. */
  place?: string;
}

/** A page that breaks says so, and does not take the rest down. */
export class ErrorBoundary extends Component<Props, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error: error ?? new Error("unknown") };
  }

  override componentDidCatch(error: unknown, info: ErrorInfo): void {
    console.error(error, info.componentStack);
  }

  override componentDidUpdate(before: Props): void {
    if (this.state.error && before.place !== this.props.place) this.setState({ error: null });
  }

  override render(): ReactNode {
    if (this.state.error === null) return this.props.children;
    return <Broken error={this.state.error} again={() => this.setState({ error: null })} />;
  }
}

/** Whether a part of the console could not be fetched, as happens after an upgrade: its files have other names now. */
export function isMissingPart(error: unknown): boolean {
  const text = error instanceof Error ? error.message : String(error);
  return /dynamically imported module|importing a module script|unable to preload|loading (css )?chunk/i.test(text);
}

function Broken({ error, again }: { error: unknown; again: () => void }) {
  const { t } = useTranslation();
  const reload = (
    <Button tone="accent" onClick={() => window.location.reload()}>
      {t("shell.broken.reload")}
    </Button>
  );
  if (isMissingPart(error)) {
    return (
      <div role="alert">
        <Empty title={t("shell.broken.upgraded")} action={reload}>
          {t("shell.broken.upgradedAbout")}
        </Empty>
      </div>
    );
  }
  const details = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return (
    <div role="alert" className={styles.broken}>
      <Empty
        title={t("shell.broken.title")}
        action={
          <div className={styles.choices}>
            <Button onClick={again}>{t("common.retry")}</Button>
            {reload}
          </div>
        }
      >
        {t("shell.broken.about")}
      </Empty>
      <details>
        <summary>{t("shell.broken.details")}</summary>
        <Code text={details} label={t("shell.broken.details")} fileName="console-error.txt" wrap />
      </details>
    </div>
  );
}
