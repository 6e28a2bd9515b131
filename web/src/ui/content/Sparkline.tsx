import styles from "../layout/layout.module.css";

/** Small line chart without axes. `label` describes it. */
export function Sparkline({
  values,
  label,
  max,
  width = 80,
  height = 22,
}: {
  values: number[];
  label: string;
  max?: number;
  width?: number;
  height?: number;
}) {
  const top = max ?? Math.max(1e-9, ...values);
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  const points = values.map(
    (value, index) =>
      `${(index * step).toFixed(1)},${(height - 1 - (Math.min(value, top) / top) * (height - 2)).toFixed(1)}`,
  );
  return (
    <svg className={styles.spark} width={width} height={height} role="img" aria-label={label}>
      <polyline points={points.join(" ")} fill="none" stroke="var(--accent)" strokeWidth="1.5" />
    </svg>
  );
}
