import { ChevronDown, ChevronUp, X } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { IconButton } from "@/ui/Button";
import { SearchBox } from "@/ui/forms";
import { type Screen, searchLook } from "./screen";
import styles from "./Terminal.module.css";

/** The search field of a terminal. */
export function Find({ screen, onClose }: { screen: Screen; onClose: () => void }) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const [count, setCount] = useState<{ at: number; all: number } | null>(null);
  const place = useRef<HTMLElement>(null);
  useEffect(() => {
    place.current?.querySelector("input")?.focus();
    const watch = screen.search.onDidChangeResults(({ resultIndex, resultCount }) =>
      setCount({ at: resultIndex + 1, all: resultCount }),
    );
    return () => {
      watch.dispose();
      screen.search.clearDecorations();
    };
  }, [screen]);
  const next = () => screen.search.findNext(text, searchLook());
  const previous = () => screen.search.findPrevious(text, searchLook());
  return (
    <search
      ref={place}
      className={styles.find}
      onKeyDown={(event) => {
        if (event.key === "Enter") (event.shiftKey ? previous : next)();
        if (event.key === "Escape") {
          onClose();
          screen.terminal.focus();
        }
      }}
    >
      <SearchBox
        label={t("computers.terminal.find")}
        value={text}
        onChange={(now) => {
          setText(now);
          screen.search.findNext(now, { ...searchLook(), incremental: true });
        }}
      />
      <span className={styles.soft} role="status">
        {text && count
          ? count.all
            ? `${Math.max(count.at, 1)} / ${count.all}`
            : t("computers.terminal.notFound")
          : ""}
      </span>
      <IconButton size="small" icon={ChevronUp} label={t("computers.terminal.previous")} onClick={previous} />
      <IconButton size="small" icon={ChevronDown} label={t("computers.terminal.next")} onClick={next} />
      <IconButton size="small" icon={X} label={t("common.close")} onClick={onClose} />
    </search>
  );
}
