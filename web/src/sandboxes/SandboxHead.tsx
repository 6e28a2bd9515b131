import { ArrowLeft, MessagesSquare } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { Badge } from "@/ui/Badge";
import { Button } from "@/ui/Button";
import { CopyButton } from "@/ui/Code";
import { SharedBadge, useSharing } from "@/ui/Sharing";
import { Time } from "@/ui/Time";
import { pathOf, useDeeds } from "./actions";
import { ICONS } from "./BoxMenu";
import { OwnerOf } from "./columns";
import { deedsOf, ENDED, kindOf, originOf, ownerOf, type Sandbox, TONES, titleOf } from "./facts";
import { Load } from "./Load";
import styles from "./Sandboxes.module.css";
import { useSnapshotNames } from "./useSnapshotNames";

/** What a sandbox is, and what can be done with it unless it is `gone`. */
export function SandboxHead({ box, gone, writes }: { box: Sandbox; gone: boolean; writes: boolean }) {
  const { t } = useTranslation();
  const [, navigate] = useLocation();
  const deeds = useDeeds();
  const sharing = useSharing(pathOf(box.id), ownerOf(box) ? null : box, deeds.again);
  const snapshots = useSnapshotNames(Boolean(box.snapshotId));
  const { state, message, reason } = box.status;
  const { name } = box.metadata;
  return (
    <header className={styles.head}>
      <div>
        <div className={styles.titleRow}>
          <Link href="/sandboxes" aria-label={t("sandboxes.back")} title={t("sandboxes.back")}>
            <ArrowLeft size={18} aria-hidden />
          </Link>
          <h1 className={name ? undefined : styles.id}>
            <bdi>{titleOf(box)}</bdi>
          </h1>
          {name && <span className={styles.under}>{box.id}</span>}
          <CopyButton text={box.id} />
          <Badge tone={TONES[state]}>{t(`sandboxes.states.${state}`)}</Badge>
          <SharedBadge owned={box} />
        </div>
        <dl className={styles.facts}>
          {kindOf(box) && <Fact label={t("sandboxes.kind")}>{kindOf(box)}</Fact>}
          <Fact label={t(box.image ? "sandboxes.image" : "sandboxes.snapshots.one")}>
            <bdi>{originOf(box, snapshots)}</bdi>
          </Fact>
          <Fact label={t("sandboxes.for")}>
            <OwnerOf box={box} />
          </Fact>
          <Fact label={t("sandboxes.made")}>
            <Time at={box.createdAt} />
          </Fact>
          {!gone && !ENDED.includes(state) && (
            <Fact label={t("sandboxes.ends")}>
              {box.expiresAt ? <Time at={box.expiresAt} /> : t("sandboxes.never")}
            </Fact>
          )}
          {(message || reason) && state !== "Running" && (
            <Fact label={t("sandboxes.why")}>
              <bdi>{message ?? reason}</bdi>
            </Fact>
          )}
        </dl>
        {state === "Running" && <Load box={box} wide />}
      </div>
      <div className={styles.buttons}>
        <Button
          size="small"
          tone="quiet"
          icon={MessagesSquare}
          onClick={() => navigate(`/archive/sandboxes/${encodeURIComponent(box.id)}`)}
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
          deedsOf(box).map((deed) => (
            <Button
              key={deed}
              size="small"
              icon={ICONS[deed]}
              disabled={deeds.busy.has(box.id)}
              onClick={() => {
                if (deed === "delete") {
                  deeds.removeBoxes([box.id]);
                  navigate("/sandboxes");
                } else void deeds.perform(deed, [box]);
              }}
            >
              {t(`sandboxes.deeds.${deed}`)}
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
