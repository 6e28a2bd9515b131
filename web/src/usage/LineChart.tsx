import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useAppearance } from "@/shell/account/appearance";
import styles from "./UsagePage.module.css";

export interface ChartLine {
  label: string;
  values: (number | null)[];
}

interface Props {
  /** Description of the chart. */
  label: string;
  /** Times in order. */
  times: string[];
  /** Whether the times are hours; days otherwise. */
  hourly: boolean;
  lines: ChartLine[];
  format: (value: number) => string;
}

const HEIGHT = 220;
const HOUR = 3_600;
const STEPS = [1, 2, 3, 6, 12, 24, 48, 168, 336, 720].map((hours) => hours * HOUR);
const COLOURS = ["--accent", "--info", "--warning", "--danger"];

/** Line chart over time, with a table for screen readers. */
export function LineChart({ label, times, hourly, lines, format }: Props) {
  const { t, i18n } = useTranslation();
  const frame = useRef<HTMLDivElement>(null);
  const theme = useAppearance((state) => state.theme);
  const [broken, setBroken] = useState(false);
  const content = useRef({ times, hourly, lines, format });
  content.current = { times, hourly, lines, format };
  const shape = JSON.stringify([times, lines]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: redraw when the data or the colours change.
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    let plot: { destroy: () => void; setSize: (size: { width: number; height: number }) => void } | null = null;
    let unmounted = false;
    const resized = new ResizeObserver(() => plot?.setSize({ width: element.clientWidth, height: HEIGHT }));
    void drawChart(element, content.current, i18n.language, t(hourly ? "usage.hour" : "usage.day"))
      .then((created) => {
        if (unmounted) created.destroy();
        else {
          plot = created;
          resized.observe(element);
        }
      })
      .catch(() => setBroken(true));
    return () => {
      unmounted = true;
      resized.disconnect();
      plot?.destroy();
    };
  }, [shape, theme, i18n.language]);

  const table = (
    <table className={broken ? styles.plain : undefined}>
      <caption>{label}</caption>
      <thead>
        <tr>
          <th scope="col">{t(hourly ? "usage.hour" : "usage.day")}</th>
          {lines.map((line) => (
            <th key={line.label} scope="col">
              {line.label}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {times.map((time, index) => (
          <tr key={time}>
            <th scope="row">{hourly ? time.slice(0, 16).replace("T", " ") : time.slice(0, 10)}</th>
            {lines.map((line) => (
              <td key={line.label}>{formatChartValue(line.values[index], format)}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
  return (
    <figure className={styles.chart} aria-label={label}>
      {!broken && <div ref={frame} aria-hidden className={styles.plot} />}
      <div className={broken ? undefined : "visually-hidden"}>{table}</div>
    </figure>
  );
}

function formatChartValue(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "–" : format(value);
}

/** Show the newest values in the legend while no point is hovered. */
function showLastLegendValue(plot: { setLegend: (legend: { idx: number }) => void; data: ArrayLike<unknown>[] }): void {
  plot.setLegend({ idx: (plot.data[0]?.length ?? 1) - 1 });
}

async function drawChart(
  element: HTMLElement,
  { times, hourly, lines, format }: Omit<Props, "label">,
  language: string,
  span: string,
) {
  const [{ default: Plot }] = await Promise.all([import("uplot"), import("uplot/dist/uPlot.min.css")]);
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: colour("--text-soft"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
    font: `12px ${style.getPropertyValue("--font")}`,
  };
  const dateFormat = new Intl.DateTimeFormat(
    language,
    hourly
      ? { hour: "2-digit", minute: "2-digit", timeZone: "UTC", hourCycle: "h23" }
      : { month: "short", day: "numeric", timeZone: "UTC" },
  );
  const timeAt = (second: number) => dateFormat.format(new Date(second * 1000));
  return new Plot(
    {
      width: element.clientWidth,
      height: HEIGHT,
      tzDate: (second) => Plot.tzDate(new Date(second * 1000), "UTC"),
      cursor: { y: false, drag: { x: false, y: false } },
      legend: { live: true },
      hooks: {
        ready: [showLastLegendValue],
        setCursor: [
          (plot) => {
            if (plot.cursor.idx == null) showLastLegendValue(plot);
          },
        ],
      },
      scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
      axes: [
        {
          ...axis,
          values: (_, marks) => marks.map(timeAt),
          space: 70,
          incrs: STEPS,
        },
        { ...axis, values: (_, marks) => marks.map(format), size: 64 },
      ],
      series: [
        { label: span, value: (_, second) => (second === null ? "–" : timeAt(second)) },
        ...lines.map((line, index) => ({
          label: line.label,
          stroke: colour(COLOURS[index % COLOURS.length] ?? "--accent"),
          fill: index === 0 && lines.length === 1 ? colour("--accent-soft") : undefined,
          width: 2,
          points: { show: times.length <= 31, size: 5 },
          value: (_: unknown, value: number | null) => formatChartValue(value, format),
        })),
      ],
    },
    [times.map((time) => Date.parse(time) / 1000), ...lines.map((line) => line.values)],
    element,
  );
}
