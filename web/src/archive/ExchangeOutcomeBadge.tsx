import { useTranslation } from "react-i18next";
import { Badge, type Tone } from "@/ui/controls/Badge";
import { translateServerText } from "@/ui/format/server-text";
import type { Exchange } from "./api";

const TONES: Record<string, Tone> = {
  ok: "good",
  refused: "warning",
  failed: "danger",
  cut: "danger",
  client_gone: "neutral",
};

export function isScriptedExchange(exchange: Pick<Exchange, "providerKind">): boolean {
  return exchange.providerKind === "script" || exchange.providerKind === "replay";
}

/** Outcome of an exchange, marked when no model answered. */
export function ExchangeOutcomeBadge({ exchange }: { exchange: Exchange }) {
  const { t } = useTranslation();
  return (
    <>
      <Badge
        tone={TONES[exchange.outcome] ?? "neutral"}
        title={exchange.error ? translateServerText(exchange.error) : undefined}
      >
        {t(`archive.outcome.${exchange.outcome}`)}
        {exchange.status !== 200 && exchange.status > 0 && ` ${exchange.status}`}
      </Badge>{" "}
      {isScriptedExchange(exchange) && (
        <Badge title={t("transcript.scriptedHint")}>{t(`archive.by.${exchange.providerKind}`)}</Badge>
      )}
    </>
  );
}
