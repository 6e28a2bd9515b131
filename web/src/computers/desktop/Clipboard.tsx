import { ClipboardPaste, Keyboard, SendHorizontal, X } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Button, IconButton } from "@/ui/Button";
import { CopyButton } from "@/ui/Code";
import { Field, TextArea } from "@/ui/forms";
import { toast } from "@/ui/toasts";
import styles from "./Desktop.module.css";
import { keysymsOf } from "./keysyms";

interface Props {
  control: boolean;
  /** What was copied in the box last. */
  copied: string | null;
  onClose: () => void;
  onPaste: (text: string) => void;
  onPress: (keysym: number) => void;
}

/** Text in and out of a desktop, also where the browser lets no page near the clipboard. */
export function Clipboard({ control, copied, onClose, onPaste, onPress }: Props) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const read = async () => {
    try {
      setText(await navigator.clipboard.readText());
    } catch {
      toast(t("computers.clipboard.denied"), { tone: "danger" });
    }
  };
  return (
    <section className={styles.panel} aria-label={t("computers.clipboard.title")}>
      <header className={styles.panelHead}>
        <h2>{t("computers.clipboard.title")}</h2>
        <IconButton size="small" icon={X} label={t("common.close")} onClick={onClose} />
      </header>
      <Field label={t("computers.clipboard.in")} hint={control ? undefined : t("computers.clipboard.needsControl")}>
        <TextArea rows={4} value={text} onChange={(event) => setText(event.target.value)} spellCheck={false} />
      </Field>
      <div className={styles.row}>
        <Button size="small" icon={ClipboardPaste} onClick={() => void read()}>
          {t("computers.clipboard.read")}
        </Button>
        <Button size="small" icon={SendHorizontal} disabled={!control || !text} onClick={() => onPaste(text)}>
          {t("computers.clipboard.send")}
        </Button>
        <Button
          size="small"
          icon={Keyboard}
          disabled={!control || !text}
          onClick={() => {
            for (const keysym of keysymsOf(text)) onPress(keysym);
          }}
        >
          {t("computers.clipboard.type")}
        </Button>
      </div>
      <div className={styles.out}>
        <div className={styles.panelHead}>
          <h3>{t("computers.clipboard.out")}</h3>
          {copied && <CopyButton text={copied} />}
        </div>
        {copied ? (
          // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard.
          <pre className={styles.copied} tabIndex={0}>
            {copied}
          </pre>
        ) : (
          <p className={styles.soft}>{t("computers.clipboard.nothing")}</p>
        )}
      </div>
    </section>
  );
}
