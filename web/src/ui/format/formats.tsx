import i18next from "i18next";
import { useEffect, useReducer } from "react";
import { useTranslation } from "react-i18next";

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

/** "3 min. ago", in the page's language. */
export function formatRelativeTime(at: Date, now: Date, language: string): string {
  const seconds = (at.getTime() - now.getTime()) / 1000;
  const format = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
  const step = STEPS.find(([, size], index) => {
    // Rounded to the next smaller unit first, so that 59.9 minutes are an hour.
    const smaller = STEPS[index + 1]?.[1] ?? 1;
    return Math.round(Math.abs(seconds) / smaller) * smaller >= size;
  });
  if (step) return spaceNumbers(format.format(Math.round(seconds / step[1]), step[0]));
  if (seconds <= 0) return i18next.t("common.justNow");
  return spaceNumbers(format.format(Math.round(seconds), "second"));
}

/** Put a space between a number and a Chinese unit, as all texts of the console do. */
function spaceNumbers(text: string): string {
  return text.replace(/(\d)(?=\p{Script=Han})/gu, "$1 ");
}

/** Relative time; the exact time is in the tooltip. */
export function RelativeTime({ at }: { at: string }) {
  const { i18n } = useTranslation();
  const [, refresh] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const timer = setInterval(refresh, 20_000);
    return () => clearInterval(timer);
  }, []);
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return <span>{at}</span>;
  return (
    <time dateTime={at} title={date.toLocaleString(i18n.language)}>
      {formatRelativeTime(date, new Date(), i18n.language)}
    </time>
  );
}

/** "4.2 s", "3 min 20 s", in the page's language. */
export function formatDuration(seconds: number): string {
  const unit = (value: number | string, name: string) => `${value} ${i18next.t(`common.units.${name}`)}`;
  if (seconds < 1) return unit(Math.round(seconds * 1000), "ms");
  if (seconds < 60) return unit(seconds.toFixed(seconds < 10 ? 1 : 0), "s");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${unit(minutes, "min")} ${unit(Math.round(seconds % 60), "s")}`;
  return `${unit(Math.floor(minutes / 60), "h")} ${unit(minutes % 60, "min")}`;
}

/** "1.4 MB". */
export function formatBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let value = bytes;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** "12,345": every digit, so that the numbers of a table have one style. */
export function formatCount(value: number, language: string): string {
  return new Intl.NumberFormat(language).format(value);
}

/** "1,234" or "12.3k", for tokens in sentences and headings. */
export function formatAmount(value: number, language: string): string {
  return new Intl.NumberFormat(language, { notation: value >= 10_000 ? "compact" : "standard" }).format(value);
}
