import { Check, Copy, Download } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { saveBlob } from "@/api/client";
import { Button, IconButton } from "../controls/Button";
import { showErrorToast } from "../controls/toasts";
import styles from "../layout/layout.module.css";

interface Props {
  text: string;
  /** Heading: a language or file name. */
  label?: string;
  /** Name of the saved file. */
  fileName?: string;
  wrap?: boolean;
  /** Fold long text to its first lines. */
  fold?: boolean;
}

const FIRST_LINES = 8;

/** Code or other text, with buttons to copy and save. */
export function CodeBlock({ text, label = "", fileName = "snippet.txt", wrap, fold }: Props) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  const lines = fold ? text.split("\n") : [];
  // One or two more lines take no more space than the button.
  const folded = lines.length > FIRST_LINES + 2;
  return (
    <div className={styles.code}>
      <div className={styles.codeHead}>
        <span>{label}</span>
        <span>
          <CopyButton text={text} />
          <IconButton
            size="small"
            icon={Download}
            label={t("common.download")}
            onClick={() => saveBlob(new Blob([text], { type: "text/plain" }), fileName)}
          />
        </span>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard. */}
      <pre className={wrap ? styles.wrap : undefined} tabIndex={0}>
        <code>{folded && !all ? lines.slice(0, FIRST_LINES).join("\n") : text}</code>
      </pre>
      {folded && (
        <Button size="small" tone="quiet" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? t("chat.showLess") : t("common.showAllLines", { count: lines.length })}
        </Button>
      )}
    </div>
  );
}

export function CopyButton({ text, label }: { text: string; label?: string }) {
  const { t } = useTranslation();
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    } catch (error) {
      showErrorToast(error);
    }
  };
  return (
    <IconButton
      size="small"
      icon={copied ? Check : Copy}
      label={copied ? t("common.copied") : (label ?? t("common.copy"))}
      onClick={() => void copy()}
    />
  );
}
