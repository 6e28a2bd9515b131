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
import { Badge } from "@/ui/controls/Badge";
import { isRunOver, type Run, type RunState } from "./api";
import { runStateTone } from "./run-metrics";
import styles from "./runs.module.css";

const ICONS: Record<RunState, LucideIcon> = {
  queued: CircleDashed,
  running: LoaderCircle,
  succeeded: CircleCheck,
  failed: CircleX,
  timed_out: Clock,
  over_budget: Coins,
  lost: Unplug,
  cancelled: Ban,
};

/** State of a run, marked when a script answered instead of a model. */
export function RunStateBadge({ run }: { run: Run }) {
  const { t } = useTranslation();
  const Icon = ICONS[run.state] ?? CircleDashed;
  const stopping = !isRunOver(run.state) && run.cancelling;
  return (
    <span className={styles.badges}>
      <Badge tone={runStateTone(run.state)}>
        <Icon size={13} aria-hidden className={run.state === "running" ? styles.turning : undefined} />
        {stopping ? t("runs.state.cancelling") : t(`runs.state.${run.state}`)}
      </Badge>
      {run.scripted && <Badge title={t("runs.scriptedHint")}>{t("runs.scripted")}</Badge>}
    </span>
  );
}
