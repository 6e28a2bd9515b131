import { useTranslation } from "react-i18next";
import { Badge, type Tone } from "@/ui/controls/Badge";
import { RelativeTime } from "@/ui/format/formats";
import { translateServerText } from "@/ui/format/server-text";
import type { McpServer } from "./api";
import styles from "./mcp.module.css";
import { refusalText } from "./server-messages";

type Status = McpServer["state"]["status"];
const TONES: Record<Status, Tone> = { idle: "neutral", starting: "info", ready: "good", failed: "danger" };

/** State of a server, with the reason if it cannot be used. */
export function ServerState({ server }: { server: McpServer }) {
  const { t } = useTranslation();
  const isUnusable = !server.usable && server.kind !== "local";
  const reason = server.state.reason
    ? translateServerText(server.state.reason)
    : !server.usable && refusalText(server.reason ?? "", t);
  return (
    <span className={styles.stateCell}>
      <StatusBadge status={server.state.status} refused={isUnusable} />
      {reason && <span className={styles.under}>{reason}</span>}
    </span>
  );
}

function StatusBadge({ status, refused }: { status: Status; refused?: boolean }) {
  const { t } = useTranslation();
  if (refused) return <Badge tone="warning">{t("mcp.status.refused")}</Badge>;
  return <Badge tone={TONES[status]}>{t(`mcp.status.${status}`)}</Badge>;
}

/** The last changes of a server's state, newest first. */
export function HealthHistory({ server }: { server: McpServer }) {
  const { t } = useTranslation();
  const changes = [...(server.health ?? [])].reverse();
  if (changes.length === 0) return <p className={styles.soft}>{t("mcp.health.none")}</p>;
  return (
    <ol className={styles.history}>
      {changes.map((change, index) => (
        <li key={index}>
          <StatusBadge status={change.status} />
          {change.since && <RelativeTime at={change.since} />}
          {change.reason && <span className={styles.soft}>{translateServerText(change.reason)}</span>}
        </li>
      ))}
    </ol>
  );
}
