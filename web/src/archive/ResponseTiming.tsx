import { useTranslation } from "react-i18next";
import { formatBytes, formatDuration } from "@/ui/format/formats";
import type { ExchangeDetail } from "./api";
import styles from "./archive.module.css";
import { byteArrivalCurve } from "./message-turns";

const WIDTH = 640;
const HEIGHT = 140;
const MAX_POINTS = 300;

/** Chart of when the bytes of a response arrived. */
export function ResponseTiming({ exchange }: { exchange: ExchangeDetail }) {
  const { t } = useTranslation();
  const { pieces, total, firstByte } = exchange;
  if (pieces.length === 0) return <p className={styles.soft}>{t("archive.timing.none")}</p>;
  const points = byteArrivalCurve(pieces, MAX_POINTS);
  const span = Math.max(total, points.at(-1)?.at ?? 0, 1e-6);
  const x = (at: number) => (at / span) * WIDTH;
  const y = (share: number) => HEIGHT - share * (HEIGHT - 8);
  // Steps, not slopes: the share stays constant until more bytes arrive.
  const line = points.map(({ at, share }) => `H${x(at).toFixed(1)} V${y(share).toFixed(1)}`).join(" ");
  const gaps = pieces.map(([at], index) => at - (pieces[index - 1]?.[0] ?? at));
  const longest = Math.max(...gaps.slice(-100_000));
  return (
    <div className={styles.timing}>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT + 4}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={t("archive.timing.label", { count: pieces.length, time: formatDuration(span) })}
      >
        <path d={`M0 ${HEIGHT} ${line} H${WIDTH} V${HEIGHT} Z`} className={styles.area} />
        <path d={`M0 ${HEIGHT} ${line} H${WIDTH}`} className={styles.curve} />
      </svg>
      <div className={styles.axis}>
        <span>0 s</span>
        <span>{formatDuration(span)}</span>
      </div>
      <dl className={styles.facts}>
        <div>
          <dt>{t("archive.fact.firstByte")}</dt>
          <dd>{typeof firstByte === "number" ? formatDuration(firstByte) : "–"}</dd>
        </div>
        <div>
          <dt>{t("archive.timing.pieces")}</dt>
          <dd>{pieces.length}</dd>
        </div>
        <div>
          <dt>{t("archive.timing.gap")}</dt>
          <dd>{formatDuration(longest)}</dd>
        </div>
        <div>
          <dt>{t("archive.fact.responseSize")}</dt>
          <dd>{formatBytes(exchange.responseSize)}</dd>
        </div>
      </dl>
    </div>
  );
}
