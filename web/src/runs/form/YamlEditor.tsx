import { useId, useMemo, useRef } from "react";
import { useTranslation } from "react-i18next";
import styles from "./form.module.css";

export interface YamlLineMark {
  line: number;
  message: string;
}

/** Text editor with line numbers; lines with problems are marked and explained below. */
export function YamlEditor({
  text,
  marks,
  onChange,
}: {
  text: string;
  marks: YamlLineMark[];
  onChange: (text: string) => void;
}) {
  const { t } = useTranslation();
  const lineNumbers = useRef<HTMLDivElement>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  const about = useId();
  const count = useMemo(() => text.split("\n").length, [text]);
  const markedLines = new Set(marks.map((mark) => mark.line));
  const go = (line: number) => {
    const before =
      text
        .split("\n")
        .slice(0, line - 1)
        .join("\n").length + (line > 1 ? 1 : 0);
    const length = text.split("\n")[line - 1]?.length ?? 0;
    area.current?.focus();
    area.current?.setSelectionRange(before, before + length);
  };
  return (
    <div className={styles.editor}>
      <div className={styles.editorBody}>
        <div className={styles.numbers} ref={lineNumbers} aria-hidden>
          {Array.from({ length: count }, (_, index) => (
            <div key={index} className={markedLines.has(index + 1) ? styles.wrong : undefined}>
              {index + 1}
            </div>
          ))}
        </div>
        <textarea
          ref={area}
          className={styles.yaml}
          aria-label={t("runs.form.yaml")}
          aria-describedby={about}
          aria-invalid={marks.length > 0 || undefined}
          value={text}
          wrap="off"
          spellCheck={false}
          autoCapitalize="off"
          autoComplete="off"
          onChange={(event) => onChange(event.target.value)}
          onScroll={(event) => {
            if (lineNumbers.current) lineNumbers.current.scrollTop = event.currentTarget.scrollTop;
          }}
        />
      </div>
      <ul className={styles.marks} id={about} aria-live="polite">
        {marks.map((mark, index) => (
          <li key={index}>
            <button type="button" onClick={() => go(mark.line)}>
              {t("runs.form.line", { line: mark.line })}
            </button>
            <span>{mark.message}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
