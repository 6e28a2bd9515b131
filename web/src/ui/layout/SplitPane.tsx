import { type ReactNode, useRef } from "react";
import { useTranslation } from "react-i18next";
import { useStoredState } from "../hooks/browser-storage";
import styles from "./SplitPane.module.css";

interface Props {
  /** Storage name of the position. */
  name: string;
  left: ReactNode;
  /** Null for none: the left side then takes the whole width and stays mounted. */
  right: ReactNode | null;
  /** Initial width of the left side, in percent. */
  share?: number;
}

/** Two panes with a divider that moves with the mouse or the arrow keys. */
export function SplitPane({ name, left, right, share = 50 }: Props) {
  const { t } = useTranslation();
  const [percent, setPercent] = useStoredState(`split.${name}`, share);
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
          {/* biome-ignore lint/a11y/useSemanticElements: HTML has no element for a movable separator. */}
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
              const bounds = frame.current?.getBoundingClientRect();
              if (bounds && event.currentTarget.hasPointerCapture(event.pointerId))
                set(((event.clientX - bounds.left) / bounds.width) * 100);
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
