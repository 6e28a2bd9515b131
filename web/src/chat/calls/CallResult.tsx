import { memo, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { CallResult, FileContent } from "@/api/types";
import { CopyButton } from "@/ui/content/CodeBlock";
import { Button } from "@/ui/controls/Button";
import { formatBytes } from "@/ui/format/formats";
import { MessageFiles } from "../thread/MessageFiles";
import styles from "./calls.module.css";
import { MAX_LINES, splitTextIntoPieces, truncateText } from "./text-truncation";

/** Result of a call. */
export const CallResultView = memo(function CallResultView({
  session,
  result,
}: {
  session: string;
  result: CallResult;
}) {
  const { t } = useTranslation();
  const text = useMemo(
    () => result.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n"),
    [result],
  );
  const files = result.content.filter((part): part is FileContent => part.type !== "text");
  return (
    <>
      {text && <LongTextView text={text} failed={result.failed || result.refused} label={t("chat.result")} />}
      <MessageFiles session={session} files={files} />
      {!text && !files.length && <p className={styles.soft}>{t("chat.noResult")}</p>}
    </>
  );
});

interface LongTextProps {
  text: string;
  label: string;
  failed?: boolean;
  /** Characters shown before the reader expands the text. */
  maxCharacters?: number;
}

/** Program output; long text is cut until the reader expands it. */
export function LongTextView({ text, label, failed, maxCharacters }: LongTextProps) {
  const { t, i18n } = useTranslation();
  const [all, setAll] = useState(false);
  const truncated = useMemo(() => truncateText(text, maxCharacters), [text, maxCharacters]);
  const pieces = useMemo(() => splitTextIntoPieces(all ? text : truncated.text), [all, text, truncated]);
  return (
    <div className={[styles.output, failed && styles.bad].filter(Boolean).join(" ")}>
      <div className={styles.outputHead}>
        <span>{label}</span>
        <CopyButton text={text} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard. */}
      <pre tabIndex={0}>
        {pieces.map((piece, index) => (
          <code key={index} className={styles.piece}>
            {piece}
          </code>
        ))}
      </pre>
      {truncated.isCut && (
        <Button size="small" tone="quiet" onClick={() => setAll(!all)} aria-expanded={all}>
          {all
            ? t("chat.showLess")
            : truncated.lines > MAX_LINES
              ? t("chat.showAll", { count: truncated.lines, lines: truncated.lines.toLocaleString(i18n.language) })
              : t("transcript.showAll", { size: formatBytes(text.length) })}
        </Button>
      )}
    </div>
  );
}
