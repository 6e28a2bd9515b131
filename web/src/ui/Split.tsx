import { type ReactNode, useRef } from "react";
import { useTranslation } from "react-i18next";
import { useRemembered } from "./remember";
import styles from "./Split.module.css";

interface Props {
  /** What its share is remembered as. */
  name: string;
  left: ReactNode;
  /** Null where there is nothing: the left side then has all the room, and stays what it is. */
  right: ReactNode | null;
  /** How much of the width the left side has at first, in percent. */
  share?: number;
}

/** Two sides, and a bar between them that is moved with the mouse or the arrow keys. */
export function Split({ name, left, right, share = 50 }: Props) {
  const { t } = useTranslation();
  const [percent, setPercent] = useRemembered(`split.${name}`, share);
  const frame = useRef<HTMLDivElement>(null);
  const set = (value: number) => setPercent(Math.max(20, Math.min(80, value)));
  return (
    <div
      ref={frame}
      className={styles.split}
      style={{
        gridTemplateColumns:
          right === null ? "minmax(0, 1fr)" : `minmax(0, ${percent}fr) 7px minmax(0, ${100 - percent}fr)`,
      }}
    >
      <div className={styles.side}>{left}</div>
      {right !== null && (
        <>
          {/* biome-ignore lint/a11y/useSemanticElements: a separator that is moved has no element of its own. */}
          <div
            className={styles.bar}
            role="separator"
            aria-orientation="vertical"
            aria-label={t("common.resize")}
            aria-valuenow={Math.round(percent)}
            aria-valuemin={20}
            aria-valuemax={80}
            tabIndex={0}
            onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
            onPointerMove={(event) => {
              const box = frame.current?.getBoundingClientRect();
              if (box && event.currentTarget.hasPointerCapture(event.pointerId))
                set(((event.clientX - box.left) / box.width) * 100);
            }}
            onKeyDown={(event) => {
              if (event.key === "ArrowLeft") set(percent - 2);
              if (event.key === "ArrowRight") set(percent + 2);
            }}
          />
          <div className={styles.side}>{right}</div>
        </>
      )}
    </div>
  );
}
