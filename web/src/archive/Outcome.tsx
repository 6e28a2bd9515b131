import { useTranslation } from "react-i18next";
import { Badge, type Tone } from "@/ui/Badge";
import type { Exchange } from "./asking";

const TONES: Record<string, Tone> = {
  ok: "good",
  refused: "warning",
  failed: "danger",
  cut: "danger",
  client_gone: "neutral",
};

export function isScripted(exchange: Pick<Exchange, "providerKind">): boolean {
  return exchange.providerKind === "script" || exchange.providerKind === "replay";
}

/** How an exchange went, and that no model answered if none did. */
export function Outcome({ exchange }: { exchange: Exchange }) {
  const { t } = useTranslation();
  return (
    <>
      <Badge tone={TONES[exchange.outcome] ?? "neutral"} title={exchange.error ?? undefined}>
        {t(`archive.outcome.${exchange.outcome}`)}
        {exchange.status !== 200 && exchange.status > 0 && ` ${exchange.status}`}
      </Badge>{" "}
      {isScripted(exchange) && (
        <Badge title={t("transcript.scriptedHint")}>{t(`archive.by.${exchange.providerKind}`)}</Badge>
      )}
    </>
  );
}
