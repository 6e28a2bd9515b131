import { ArrowLeft, MessagesSquare } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { CopyButton } from "@/ui/content/CodeBlock";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { SharedBadge, useSharingMenuItems } from "@/ui/controls/Sharing";
import { RelativeTime } from "@/ui/format/formats";
import { sandboxApiPath, useSandboxActions } from "./actions";
import styles from "./SandboxesPage.module.css";
import { SandboxLoad } from "./SandboxLoad";
import { SANDBOX_ACTION_ICONS } from "./SandboxMenu";
import { SandboxOwnerLink } from "./sandbox-columns";
import {
  availableSandboxActions,
  ENDED_STATES,
  type Sandbox,
  STATE_TONES,
  sandboxKind,
  sandboxOrigin,
  sandboxOwner,
  sandboxTitle,
} from "./sandbox-properties";
import { useSnapshotNames } from "./useSnapshotNames";

/** Summary of a sandbox, with its actions unless it is `gone`. */
export function SandboxHeader({ sandbox, gone, writes }: { sandbox: Sandbox; gone: boolean; writes: boolean }) {
  const { t } = useTranslation();
  const [, navigate] = useLocation();
  const actions = useSandboxActions();
  const sharing = useSharingMenuItems(
    sandboxApiPath(sandbox.id),
    sandboxOwner(sandbox) ? null : sandbox,
    actions.refreshSandboxes,
  );
  const snapshots = useSnapshotNames(Boolean(sandbox.snapshotId));
  const { state, message, reason } = sandbox.status;
  const { name } = sandbox.metadata;
  return (
    <header className={styles.head}>
      <div>
        <div className={styles.titleRow}>
          <Link href="/sandboxes" aria-label={t("sandboxes.back")} title={t("sandboxes.back")}>
            <ArrowLeft size={18} aria-hidden />
          </Link>
          <h1 className={name ? undefined : styles.id}>
            <bdi>{sandboxTitle(sandbox)}</bdi>
          </h1>
          {name && <span className={styles.under}>{sandbox.id}</span>}
          <CopyButton text={sandbox.id} />
          <Badge tone={STATE_TONES[state]}>{t(`sandboxes.states.${state}`)}</Badge>
          <SharedBadge owned={sandbox} />
        </div>
        <dl className={styles.facts}>
          {sandboxKind(sandbox) && <Fact label={t("sandboxes.kind")}>{sandboxKind(sandbox)}</Fact>}
          <Fact label={t(sandbox.image ? "sandboxes.image" : "sandboxes.snapshots.one")}>
            <bdi>{sandboxOrigin(sandbox, snapshots)}</bdi>
          </Fact>
          <Fact label={t("sandboxes.for")}>
            <SandboxOwnerLink sandbox={sandbox} />
          </Fact>
          <Fact label={t("sandboxes.made")}>
            <RelativeTime at={sandbox.createdAt} />
          </Fact>
          {!gone && !ENDED_STATES.includes(state) && (
            <Fact label={t("sandboxes.ends")}>
              {sandbox.expiresAt ? <RelativeTime at={sandbox.expiresAt} /> : t("sandboxes.never")}
            </Fact>
          )}
          {(message || reason) && state !== "Running" && (
            <Fact label={t("sandboxes.why")}>
              <bdi>{message ?? reason}</bdi>
            </Fact>
          )}
        </dl>
        {state === "Running" && <SandboxLoad sandbox={sandbox} wide />}
      </div>
      <div className={styles.buttons}>
        <Button
          size="small"
          tone="quiet"
          icon={MessagesSquare}
          onClick={() => navigate(`/archive/sandboxes/${encodeURIComponent(sandbox.id)}`)}
        >
          {t("sandboxes.conversations")}
        </Button>
        {writes &&
          !gone &&
          sharing.map(({ label, icon, onSelect }) => (
            <Button key={label} size="small" icon={icon} onClick={onSelect}>
              {label}
            </Button>
          ))}
        {writes &&
          !gone &&
          availableSandboxActions(sandbox).map((action) => (
            <Button
              key={action}
              size="small"
              icon={SANDBOX_ACTION_ICONS[action]}
              disabled={actions.busy.has(sandbox.id)}
              onClick={() => {
                if (action === "delete") {
                  actions.removeSandboxes([sandbox.id]);
                  navigate("/sandboxes");
                } else void actions.performAction(action, [sandbox]);
              }}
            >
              {t(`sandboxes.deeds.${action}`)}
            </Button>
          ))}
      </div>
    </header>
  );
}

function Fact({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}
