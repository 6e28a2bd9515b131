import { ChevronDown, ChevronUp, X } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { IconButton } from "@/ui/controls/Button";
import { SearchBox } from "@/ui/controls/forms";
import styles from "./Terminal.module.css";
import { type TerminalScreenHandle, terminalSearchDecorations } from "./xterm-screen";

export function TerminalSearch({ screen, onClose }: { screen: TerminalScreenHandle; onClose: () => void }) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const [count, setCount] = useState<{ at: number; all: number } | null>(null);
  const container = useRef<HTMLElement>(null);
  useEffect(() => {
    container.current?.querySelector("input")?.focus();
    const subscription = screen.search.onDidChangeResults(({ resultIndex, resultCount }) =>
      setCount({ at: resultIndex + 1, all: resultCount }),
    );
    return () => {
      subscription.dispose();
      screen.search.clearDecorations();
    };
  }, [screen]);
  const next = () => screen.search.findNext(text, terminalSearchDecorations());
  const previous = () => screen.search.findPrevious(text, terminalSearchDecorations());
  return (
    <search
      ref={container}
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
        label={t("sandboxPanel.terminal.find")}
        value={text}
        onChange={(typed) => {
          setText(typed);
          screen.search.findNext(typed, { ...terminalSearchDecorations(), incremental: true });
        }}
      />
      <span className={styles.soft} role="status">
        {text && count
          ? count.all
            ? `${Math.max(count.at, 1)} / ${count.all}`
            : t("sandboxPanel.terminal.notFound")
          : ""}
      </span>
      <IconButton size="small" icon={ChevronUp} label={t("sandboxPanel.terminal.previous")} onClick={previous} />
      <IconButton size="small" icon={ChevronDown} label={t("sandboxPanel.terminal.next")} onClick={next} />
      <IconButton size="small" icon={X} label={t("common.close")} onClick={onClose} />
    </search>
  );
}
