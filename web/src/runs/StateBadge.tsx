import {
  Ban,
  CircleCheck,
  CircleDashed,
  CircleX,
  Clock,
  Coins,
  LoaderCircle,
  type LucideIcon,
  Unplug,
} from "lucide-react";
import { useTranslation } from "react-i18next";
import { Badge } from "@/ui/Badge";
import { isOver, type Run, type State } from "./asking";
import { toneOf } from "./figures";
import styles from "./runs.module.css";

const ICONS: Record<State, LucideIcon> = {
  queued: CircleDashed,
  running: LoaderCircle,
  succeeded: CircleCheck,
  failed: CircleX,
  timed_out: Clock,
  over_budget: Coins,
  lost: Unplug,
  cancelled: Ban,
};

/** How a run is, and that a script answered in it if one did. */
export function StateBadge({ run }: { run: Run }) {
  const { t } = useTranslation();
  const Icon = ICONS[run.state] ?? CircleDashed;
  const stopping = !isOver(run.state) && run.cancelling;
  return (
    <span className={styles.badges}>
      <Badge tone={toneOf(run.state)}>
        <Icon size={13} aria-hidden className={run.state === "running" ? styles.turning : undefined} />
        {stopping ? t("runs.state.cancelling") : t(`runs.state.${run.state}`)}
      </Badge>
      {run.scripted && <Badge title={t("runs.scriptedHint")}>{t("runs.scripted")}</Badge>}
    </span>
  );
}
