import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { Badge } from "@/ui/controls/Badge";
import { SharedBadge } from "@/ui/controls/Sharing";
import { RelativeTime } from "@/ui/format/formats";
import { translateServerText } from "@/ui/format/server-text";
import type { Column } from "@/ui/layout/Table";
import styles from "./SandboxesPage.module.css";
import { SandboxLoad } from "./SandboxLoad";
import {
  type Sandbox,
  STATE_TONES,
  sandboxKind,
  sandboxOrigin,
  sandboxOwner,
  sandboxTitle,
  sandboxUserLabels,
} from "./sandbox-properties";

/** `snapshots` maps ids to names, `chats` ids to titles. */
export function useSandboxColumns(snapshots: Record<string, string>, chats: Record<string, string>): Column<Sandbox>[] {
  const { t } = useTranslation();
  return useMemo(
    () => [
      {
        id: "id",
        label: t("sandboxes.sandbox"),
        cell: (sandbox) => (
          <div className={styles.nameCell}>
            <Link
              href={`/sandboxes/${encodeURIComponent(sandbox.id)}`}
              className={sandbox.metadata.name ? styles.name : styles.id}
            >
              <bdi>{sandboxTitle(sandbox)}</bdi>
            </Link>
            {sandbox.metadata.name && <span className={styles.under}>{sandbox.id}</span>}
            <SharedBadge owned={sandbox} />
            <span className={styles.narrow}>
              {sandboxOwner(sandbox) || sandboxUserLabels(sandbox).length > 0 ? (
                <SandboxOwnerLink sandbox={sandbox} chats={chats} />
              ) : (
                <bdi>{sandboxKind(sandbox) ?? sandboxOrigin(sandbox, snapshots)}</bdi>
              )}
            </span>
          </div>
        ),
      },
      {
        id: "state",
        label: t("sandboxes.state"),
        cell: (sandbox) => (
          <Badge tone={STATE_TONES[sandbox.status.state]} title={stateReason(sandbox)}>
            {t(`sandboxes.states.${sandbox.status.state}`)}
          </Badge>
        ),
      },
      { id: "kind", label: t("sandboxes.kind"), cell: (sandbox) => sandboxKind(sandbox) ?? "–", minor: true },
      {
        id: "image",
        label: t("sandboxes.image"),
        cell: (sandbox) => <bdi>{sandboxOrigin(sandbox, snapshots)}</bdi>,
        minor: true,
      },
      {
        id: "owner",
        label: t("sandboxes.for"),
        cell: (sandbox) => <SandboxOwnerLink sandbox={sandbox} chats={chats} />,
        minor: true,
      },
      { id: "load", label: t("sandboxes.load"), cell: (sandbox) => <SandboxLoad sandbox={sandbox} />, minor: true },
      {
        id: "age",
        label: t("sandboxes.made"),
        cell: (sandbox) => <RelativeTime at={sandbox.createdAt} />,
        minor: true,
      },
      {
        id: "expires",
        label: t("sandboxes.ends"),
        cell: (sandbox) => (sandbox.expiresAt ? <RelativeTime at={sandbox.expiresAt} /> : t("sandboxes.never")),
        minor: true,
      },
    ],
    [t, snapshots, chats],
  );
}

export function SandboxOwnerLink({ sandbox, chats = {} }: { sandbox: Sandbox; chats?: Record<string, string> }) {
  const { t } = useTranslation();
  const owner = sandboxOwner(sandbox);
  const labels = sandboxUserLabels(sandbox);
  if (!owner && labels.length === 0) return <>–</>;
  return (
    <span className={styles.owner}>
      {owner && (
        <Link href={owner.path} title={owner.id}>
          {t(`sandboxes.owners.${owner.type}`)}
        </Link>
      )}
      {owner && chats[owner.id] && <bdi className={styles.label}>{chats[owner.id]}</bdi>}
      {labels.slice(0, 3).map(([name, value]) => (
        <bdi key={name} className={styles.label} title={`${name}: ${value}`}>
          {name === "paddock.task" ? value : `${name}: ${value}`}
        </bdi>
      ))}
      {labels.length > 3 && <span className={styles.label}>+{labels.length - 3}</span>}
    </span>
  );
}

/** Why a sandbox is in its state, in the language of the page. */
function stateReason({ status }: Sandbox): string | undefined {
  const reason = status.message ?? status.reason;
  return reason ? translateServerText(reason) : undefined;
}
