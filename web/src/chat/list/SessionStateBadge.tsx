import { useTranslation } from "react-i18next";
import type { SessionState } from "@/api/types";
import { Badge, type Tone } from "@/ui/controls/Badge";

const TONES: Record<SessionState, Tone> = { idle: "neutral", running: "info", waiting: "warning", parked: "warning" };

/** State of a session; nothing when idle. */
export function SessionStateBadge({ state }: { state: SessionState }) {
  const { t } = useTranslation();
  if (state === "idle") return null;
  return (
    <Badge tone={TONES[state]} title={t(`chat.stateAbout.${state}`)}>
      {t(`chat.state.${state}`)}
    </Badge>
  );
}
