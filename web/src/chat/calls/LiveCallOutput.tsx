import { useLayoutEffect, useMemo, useRef } from "react";
import { useTranslation } from "react-i18next";
import { finalTerminalText } from "@/ui/content/terminal-text";
import styles from "./calls.module.css";

/** Distance from the end, in pixels, that still counts as reading the end. */
const NEAR_END_PX = 24;

/** Live output of a tool. Scrolls to the end unless the reader has scrolled up. */
export function LiveCallOutput({ text }: { text: string }) {
  const { t } = useTranslation();
  const output = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  const finalText = useMemo(() => finalTerminalText(text).trimEnd(), [text]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: scroll when the output grows.
  useLayoutEffect(() => {
    if (atEnd.current && output.current) output.current.scrollTop = output.current.scrollHeight;
  }, [finalText]);
  if (!finalText) return null;
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset belongs to a form.
    <pre
      ref={output}
      className={styles.live}
      role="group"
      aria-label={t("chat.outputSoFar")}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
      tabIndex={0}
      onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
        atEnd.current = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
      }}
    >
      {finalText}
    </pre>
  );
}
