import { Check } from "lucide-react";
import { memo, useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import { Badge, type Tone } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { formatDuration } from "@/ui/format/formats";
import { safeDisplayName } from "../files/sandbox-paths";
import {
  type Connection,
  type ConnectionOutcome,
  canAllow,
  connectionOutcome,
  connectionTarget,
  formatStartTime,
  refusalParams,
} from "./connections";
import styles from "./network.module.css";
import { TransferredBytes } from "./TransferredBytes";

const TONES: Record<ConnectionOutcome, Tone> = { open: "info", allowed: "good", denied: "danger", failed: "warning" };

interface Props {
  connection: Connection;
  /** Whether the policy has a rule for the target by now. */
  isAllowedNow: boolean;
  busy: boolean;
  onAllow: ((target: string) => void) | null;
}

/** One connection: target, decision with its rule or reason, bytes and duration. */
export const ConnectionRow = memo(function ConnectionRow({ connection, isAllowedNow, busy, onAllow }: Props) {
  const { t, i18n } = useTranslation();
  const target = connectionTarget(connection);
  const outcome = connectionOutcome(connection);
  const { refusal, rule, message } = connection;
  const allowedNow = useRef<HTMLSpanElement>(null);
  const wasClicked = useRef(false);
  useEffect(() => {
    // The button is gone, and with it the focus.
    if (isAllowedNow && wasClicked.current) allowedNow.current?.focus();
    if (isAllowedNow) wasClicked.current = false;
  }, [isAllowedNow]);
  return (
    <li className={styles.connection} data-outcome={outcome}>
      <time dateTime={connection.startedAt} title={new Date(connection.startedAt).toLocaleString(i18n.language)}>
        {formatStartTime(connection.startedAt, new Date(), i18n.language)}
      </time>
      <div className={styles.what}>
        <div className={styles.targetLine}>
          <bdi className={styles.target}>{safeDisplayName(target)}</bdi>
          <Badge tone={TONES[outcome]}>{t(`network.outcomes.${outcome}`)}</Badge>
        </div>
        {refusal && !(refusal === "deny_rule" && rule) ? (
          <span className={styles.soft} title={message ? safeDisplayName(message) : undefined}>
            {safeDisplayName(t(`network.refusals.${refusal}`, refusalParams(connection)))}
          </span>
        ) : (
          rule && (
            <span className={styles.soft}>
              {t("network.byRule")} <code>{safeDisplayName(rule)}</code>
            </span>
          )
        )}
      </div>
      {outcome !== "denied" && (
        <div className={styles.figures}>
          <TransferredBytes sent={connection.sentBytes} received={connection.receivedBytes} />
          <span className={styles.duration}>{formatDuration(connection.seconds)}</span>
        </div>
      )}
      {onAllow && canAllow(connection) && (
        <div className={styles.action}>
          {isAllowedNow ? (
            <span ref={allowedNow} tabIndex={-1} className={styles.allowedNow}>
              <Check size={14} aria-hidden /> {t("network.allowedNow")}
            </span>
          ) : (
            <Button
              size="small"
              busy={busy}
              aria-label={t("network.allowTarget", { target: safeDisplayName(target) })}
              onClick={() => {
                wasClicked.current = true;
                onAllow(target);
              }}
            >
              {t("network.allow")}
            </Button>
          )}
        </div>
      )}
    </li>
  );
});
