import { memo, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/Button";
import { CopyButton } from "@/ui/Code";
import styles from "./calls.module.css";
import { counts, hunks, lines } from "./diff";

const MOST = 200;

/** What changes between two texts, line by line. */
export const Diff = memo(function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  const { found, total, added, removed } = useMemo(() => {
    const whole = lines(before, after);
    const parts = hunks(whole);
    return { found: parts, total: parts.reduce((sum, part) => sum + part.lines.length, 0), ...counts(whole) };
  }, [before, after]);
  let left = all ? Number.POSITIVE_INFINITY : MOST;
  return (
    <div className={styles.output}>
      <div className={styles.outputHead}>
        <span className={styles.path}>{label}</span>
        <span className={styles.changes}>
          <span className={styles.plus}>
            <span className="visually-hidden">{t("chat.linesAdded", { count: added })}</span>
            <span aria-hidden>+{added}</span>
          </span>
          <span className={styles.minus}>
            <span className="visually-hidden">{t("chat.linesRemoved", { count: removed })}</span>
            <span aria-hidden>−{removed}</span>
          </span>
          <CopyButton text={after} />
        </span>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard. */}
      <pre tabIndex={0}>
        {found.length === 0 && <code className={styles.gap}>{t("chat.noChange")}</code>}
        {found.map((hunk, index) => {
          const shown = hunk.lines.slice(0, Math.max(0, left));
          left -= hunk.lines.length;
          if (!shown.length) return null;
          return (
            <code key={index} className={styles.hunk}>
              {hunk.skipped > 0 && <span className={styles.gap}>{t("chat.linesSame", { count: hunk.skipped })}</span>}
              {shown.map((line, place) => (
                <span
                  key={place}
                  className={line.sign === "+" ? styles.added : line.sign === "-" ? styles.removed : ""}
                >
                  {line.sign} {line.text}
                  {"\n"}
                </span>
              ))}
            </code>
          );
        })}
      </pre>
      {total > MOST && (
        <Button size="small" tone="quiet" onClick={() => setAll(!all)} aria-expanded={all}>
          {all ? t("chat.showLess") : t("chat.showAll", { count: total, lines: total })}
        </Button>
      )}
    </div>
  );
});
