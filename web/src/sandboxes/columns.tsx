import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { Badge } from "@/ui/Badge";
import { SharedBadge } from "@/ui/Sharing";
import type { Column } from "@/ui/Table";
import { Time } from "@/ui/Time";
import { kindOf, labelsOf, originOf, ownerOf, type Sandbox, TONES, titleOf } from "./facts";
import { Load } from "./Load";
import styles from "./Sandboxes.module.css";

/** `snapshots` are names and `chats` titles, by id. */
export function useColumns(snapshots: Record<string, string>, chats: Record<string, string>): Column<Sandbox>[] {
  const { t } = useTranslation();
  return useMemo(
    () => [
      {
        id: "id",
        label: t("sandboxes.sandbox"),
        cell: (box) => (
          <div className={styles.who}>
            <Link
              href={`/sandboxes/${encodeURIComponent(box.id)}`}
              className={box.metadata.name ? styles.name : styles.id}
            >
              <bdi>{titleOf(box)}</bdi>
            </Link>
            {box.metadata.name && <span className={styles.under}>{box.id}</span>}
            <SharedBadge owned={box} />
            <span className={styles.narrow}>
              {ownerOf(box) || labelsOf(box).length > 0 ? (
                <OwnerOf box={box} chats={chats} />
              ) : (
                <bdi>{kindOf(box) ?? originOf(box, snapshots)}</bdi>
              )}
            </span>
          </div>
        ),
      },
      {
        id: "state",
        label: t("sandboxes.state"),
        cell: (box) => (
          <Badge tone={TONES[box.status.state]} title={box.status.message ?? box.status.reason ?? undefined}>
            {t(`sandboxes.states.${box.status.state}`)}
          </Badge>
        ),
      },
      { id: "kind", label: t("sandboxes.kind"), cell: (box) => kindOf(box) ?? "–", minor: true },
      { id: "image", label: t("sandboxes.image"), cell: (box) => <bdi>{originOf(box, snapshots)}</bdi>, minor: true },
      { id: "owner", label: t("sandboxes.for"), cell: (box) => <OwnerOf box={box} chats={chats} />, minor: true },
      { id: "load", label: t("sandboxes.load"), cell: (box) => <Load box={box} />, minor: true },
      { id: "age", label: t("sandboxes.made"), cell: (box) => <Time at={box.createdAt} />, minor: true },
      {
        id: "expires",
        label: t("sandboxes.ends"),
        cell: (box) => (box.expiresAt ? <Time at={box.expiresAt} /> : t("sandboxes.never")),
        minor: true,
      },
    ],
    [t, snapshots, chats],
  );
}

export function OwnerOf({ box, chats = {} }: { box: Sandbox; chats?: Record<string, string> }) {
  const { t } = useTranslation();
  const owner = ownerOf(box);
  const labels = labelsOf(box);
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
