import { useLayoutEffect, useMemo, useRef } from "react";
import { useTranslation } from "react-i18next";
import { standing } from "@/ui/terminal";
import styles from "./calls.module.css";

/** How far from its end, in pixels, somebody still looks at the end. */
const NEAR = 24;

/** What a tool says while it runs. Its newest lines stay in view, unless somebody looks at earlier ones. */
export function LiveOutput({ text }: { text: string }) {
  const { t } = useTranslation();
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  const shown = useMemo(() => standing(text).trimEnd(), [text]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: it is what grows.
  useLayoutEffect(() => {
    if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown]);
  if (!shown) return null;
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is part of a form.
    <pre
      ref={box}
      className={styles.live}
      role="group"
      aria-label={t("chat.outputSoFar")}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard.
      tabIndex={0}
      onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
        atEnd.current = scrollHeight - scrollTop - clientHeight < NEAR;
      }}
    >
      {shown}
    </pre>
  );
}
