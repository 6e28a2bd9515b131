import { Check, Copy, Download } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { save } from "@/api/client";
import { Button, IconButton } from "./Button";
import styles from "./pieces.module.css";
import { toastError } from "./toasts";

interface Props {
  text: string;
  /** What stands above it: a language, a file's name. */
  label?: string;
  /** What it is called when it is saved. */
  fileName?: string;
  wrap?: boolean;
  /** Show only the first lines of a long text until all of it is asked for. */
  fold?: boolean;
}

const FIRST_LINES = 8;

/** Text as programs write it, to be copied or saved. */
export function Code({ text, label = "", fileName = "snippet.txt", wrap, fold }: Props) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  const lines = fold ? text.split("\n") : [];
  // One or two lines more take no more room than the button.
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
            onClick={() => save(new Blob([text], { type: "text/plain" }), fileName)}
          />
        </span>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard. */}
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
      toastError(error);
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
