import { memo, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { CallResult, FileContent } from "@/api/types";
import { Button } from "@/ui/Button";
import { CopyButton } from "@/ui/Code";
import { Files } from "../thread/Files";
import styles from "./calls.module.css";
import { cut, pieces } from "./long";

/** What came of a call. */
export const Result = memo(function Result({ session, result }: { session: string; result: CallResult }) {
  const { t } = useTranslation();
  const text = useMemo(
    () => result.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n"),
    [result],
  );
  const files = result.content.filter((part): part is FileContent => part.type !== "text");
  return (
    <>
      {text && <LongText text={text} failed={result.failed || result.refused} label={t("chat.result")} />}
      <Files session={session} files={files} />
      {!text && !files.length && <p className={styles.soft}>{t("chat.noResult")}</p>}
    </>
  );
});

/** Text as a program wrote it; of a long one the beginning, until all of it is asked for. */
export function LongText({ text, label, failed }: { text: string; label: string; failed?: boolean }) {
  const { t, i18n } = useTranslation();
  const [all, setAll] = useState(false);
  const short = useMemo(() => cut(text), [text]);
  const shown = useMemo(() => pieces(all ? text : short.text), [all, text, short]);
  return (
    <div className={[styles.output, failed && styles.bad].filter(Boolean).join(" ")}>
      <div className={styles.outputHead}>
        <span>{label}</span>
        <CopyButton text={text} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard. */}
      <pre tabIndex={0}>
        {shown.map((piece, index) => (
          <code key={index} className={styles.piece}>
            {piece}
          </code>
        ))}
      </pre>
      {short.isCut && (
        <Button size="small" tone="quiet" onClick={() => setAll(!all)} aria-expanded={all}>
          {all
            ? t("chat.showLess")
            : t("chat.showAll", { count: short.lines, lines: short.lines.toLocaleString(i18n.language) })}
        </Button>
      )}
    </div>
  );
}
