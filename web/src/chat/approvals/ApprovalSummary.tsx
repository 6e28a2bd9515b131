import type { TFunction } from "i18next";
import {
  CircleHelp,
  Eye,
  FilePen,
  Globe,
  type LucideIcon,
  MessageSquareQuote,
  SquareTerminal,
  Trash2,
  TriangleAlert,
} from "lucide-react";
import { useTranslation } from "react-i18next";
import type { CallSummary as Summary } from "@/api/types";
import styles from "./approvals.module.css";
import { revealInvisibleCharacters } from "./invisible-characters";

const ICONS: Record<Summary["effects"][number], LucideIcon> = {
  reads: Eye,
  writes: FilePen,
  deletes: Trash2,
  runs: SquareTerminal,
  network: Globe,
  unknown: CircleHelp,
};

/** Summary of a call in the page's language; falls back to the server's text. */
export function approvalSummaryText(t: TFunction, summary: Summary): string {
  const { code, params, writes, deletes, hosts, unnamed } = summary;
  const effectText = t(`approvals.does.${code}`, { ...params, defaultValue: "" });
  if (!effectText) return summary.text;
  const { kind, more, others } = params;
  const parts = [kind ? t("approvals.inSandbox", { what: effectText, kind }) : effectText];
  if (typeof more === "number" && more > 0) parts[0] += t("approvals.moreCommands", { count: more, others });
  if (writes.length) parts.push(t("approvals.writes", { paths: writes.join(", ") }));
  if (deletes.length) parts.push(t("approvals.deletes", { paths: deletes.join(", ") }));
  if (hosts.length) parts.push(t("approvals.contacts", { hosts: hosts.join(", ") }));
  if (unnamed) parts.push(t("approvals.unnamed", { count: unnamed }));
  return parts.join(t("approvals.stop")) + t("approvals.stop").trim();
}

/** One-line summary of a call, its effect, and the agent's stated reason. */
export default function ApprovalSummary({ summary }: { summary: Summary }) {
  const { t } = useTranslation();
  const statedReason = summary.agent_words;
  return (
    <div className={styles.summary} data-testid="call-summary">
      <p className={styles.does}>
        <bdi>{approvalSummaryText(t, summary)}</bdi>
      </p>
      <ul className={styles.effects} aria-label={t("approvals.effects")}>
        {summary.effects.map((effect) => {
          const Icon = ICONS[effect];
          return (
            <li key={effect} data-effect={effect}>
              <Icon size={14} aria-hidden />
              {t(`approvals.effect.${effect}`)}
            </li>
          );
        })}
      </ul>
      {summary.opaque && (
        <p className={styles.more}>
          <TriangleAlert size={14} aria-hidden />
          {t("approvals.opaque")}
        </p>
      )}
      {statedReason && (
        <p className={styles.soft}>
          <MessageSquareQuote size={14} aria-hidden /> {t("approvals.agentSays")}{" "}
          <bdi>“{revealInvisibleCharacters(statedReason) ?? statedReason}”</bdi>
        </p>
      )}
    </div>
  );
}

/** Only the summary line, for narrow layouts. */
export function ApprovalSummaryLine({ summary }: { summary: Summary }) {
  const { t } = useTranslation();
  return (
    <bdi>
      {approvalSummaryText(t, summary)}
      {summary.opaque && ` ${t("approvals.opaque")}`}
    </bdi>
  );
}
