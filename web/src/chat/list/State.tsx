import { useTranslation } from "react-i18next";
import type { SessionState } from "@/api/types";
import { Badge, type Tone } from "@/ui/Badge";

const TONES: Record<SessionState, Tone> = { idle: "neutral", running: "info", waiting: "warning", parked: "warning" };

/** What a session is at; nothing for one that rests. */
export function State({ state }: { state: SessionState }) {
  const { t } = useTranslation();
  if (state === "idle") return null;
  return (
    <Badge tone={TONES[state]} title={t(`chat.stateAbout.${state}`)}>
      {t(`chat.state.${state}`)}
    </Badge>
  );
}
