import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import styles from "./Diff.module.css";
import { countChanges, type DiffLine, type DiffPart, diffLines, foldUnchangedLines } from "./line-diff";

interface Props {
  /** The old text; null or "" if there was none. */
  before: string | null;
  after: string;
  /** Heading: a path. */
  label?: string;
}

/** Diff of two texts; unchanged parts are folded. */
export function DiffView({ before, after, label }: Props) {
  const { t } = useTranslation();
  const { parts, count } = useMemo(() => {
    const lines = diffLines(before ?? "", after);
    return { parts: foldUnchangedLines(lines), count: countChanges(lines) };
  }, [before, after]);
  const same = count.added + count.removed === 0;
  return (
    <div className={styles.diff}>
      <div className={styles.head}>
        <span className={styles.label}>{label}</span>
        <span>
          {same ? (
            t("diff.same")
          ) : (
            <>
              <span className={styles.addedCount}>+{count.added}</span>{" "}
              <span className={styles.removedCount}>−{count.removed}</span>
              <span className="visually-hidden">
                {t("diff.added", { count: count.added })}, {t("diff.removed", { count: count.removed })}
              </span>
            </>
          )}
        </span>
      </div>
      {!same && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
        <section className={styles.scroll} tabIndex={0} aria-label={label || t("diff.label")}>
          <table className={styles.table}>
            <tbody>
              {parts.map((part, at) => (
                <DiffPartView key={at} part={part} />
              ))}
            </tbody>
          </table>
        </section>
      )}
    </div>
  );
}

const AT_ONCE = 2000;

function DiffPartView({ part }: { part: DiffPart }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const [shown, setShown] = useState(AT_ONCE);
  if (part.type === "same" && !open)
    return (
      <tr>
        <td colSpan={4} className={styles.fold}>
          <button type="button" onClick={() => setOpen(true)}>
            {t("diff.unchanged", { count: part.lines.length })}
          </button>
        </td>
      </tr>
    );
  return (
    <>
      {part.lines.slice(0, shown).map((line, at) => (
        <DiffLineView key={at} line={line} />
      ))}
      {shown < part.lines.length && (
        <tr>
          <td colSpan={4} className={styles.fold}>
            <button type="button" onClick={() => setShown(shown + AT_ONCE)}>
              {t("diff.more", { count: part.lines.length - shown })}
            </button>
          </td>
        </tr>
      )}
    </>
  );
}

const NAMES = { " ": "", "-": styles.removed, "+": styles.added } as const;

function DiffLineView({ line }: { line: DiffLine }) {
  return (
    <tr className={NAMES[line.sign]}>
      <td className={styles.number}>{line.old ?? ""}</td>
      <td className={styles.number}>{line.new ?? ""}</td>
      <td className={styles.sign}>{line.sign === "-" ? "−" : line.sign}</td>
      <td className={styles.text}>{line.text}</td>
    </tr>
  );
}
