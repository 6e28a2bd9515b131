import { ClipboardPaste, Keyboard, SendHorizontal, X } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { CopyButton } from "@/ui/content/CodeBlock";
import { Button, IconButton } from "@/ui/controls/Button";
import { Field, TextArea } from "@/ui/controls/forms";
import { showToast } from "@/ui/controls/toasts";
import styles from "./Desktop.module.css";
import { textToKeysyms } from "./text-to-keysyms";

interface Props {
  control: boolean;
  /** Text last copied in the sandbox. */
  copied: string | null;
  onClose: () => void;
  onPaste: (text: string) => void;
  onPress: (keysym: number) => void;
}

/** Clipboard exchange with a desktop; also works where the browser denies clipboard access. */
export function ClipboardPanel({ control, copied, onClose, onPaste, onPress }: Props) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const read = async () => {
    try {
      setText(await navigator.clipboard.readText());
    } catch {
      showToast(t("sandboxPanel.clipboard.denied"), { tone: "danger" });
    }
  };
  return (
    <section className={styles.panel} aria-label={t("sandboxPanel.clipboard.title")}>
      <header className={styles.panelHead}>
        <h2>{t("sandboxPanel.clipboard.title")}</h2>
        <IconButton size="small" icon={X} label={t("common.close")} onClick={onClose} />
      </header>
      <Field
        label={t("sandboxPanel.clipboard.in")}
        hint={control ? undefined : t("sandboxPanel.clipboard.needsControl")}
      >
        <TextArea rows={4} value={text} onChange={(event) => setText(event.target.value)} spellCheck={false} />
      </Field>
      <div className={styles.row}>
        <Button size="small" icon={ClipboardPaste} onClick={() => void read()}>
          {t("sandboxPanel.clipboard.read")}
        </Button>
        <Button size="small" icon={SendHorizontal} disabled={!control || !text} onClick={() => onPaste(text)}>
          {t("sandboxPanel.clipboard.send")}
        </Button>
        <Button
          size="small"
          icon={Keyboard}
          disabled={!control || !text}
          onClick={() => {
            for (const keysym of textToKeysyms(text)) onPress(keysym);
          }}
        >
          {t("sandboxPanel.clipboard.type")}
        </Button>
      </div>
      <div className={styles.out}>
        <div className={styles.panelHead}>
          <h3>{t("sandboxPanel.clipboard.out")}</h3>
          {copied && <CopyButton text={copied} />}
        </div>
        {copied ? (
          // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
          <pre className={styles.copied} tabIndex={0}>
            {copied}
          </pre>
        ) : (
          <p className={styles.soft}>{t("sandboxPanel.clipboard.nothing")}</p>
        )}
      </div>
    </section>
  );
}
