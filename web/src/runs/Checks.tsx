import { CircleCheck, CircleX } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Badge } from "@/ui/Badge";
import { Coded } from "@/ui/Coded";
import { Empty } from "@/ui/states";
import { duration } from "@/ui/Time";
import { Fold, Output } from "@/ui/Transcript";
import type { WholeRun } from "./asking";
import { percent } from "./figures";
import styles from "./run.module.css";

/** What the task's checks said, and the score they give. */
export function Checks({ run }: { run: WholeRun }) {
  const { t, i18n } = useTranslation();
  const checks = run.result?.checks ?? [];
  const score = run.result?.score;
  if (checks.length === 0)
    return (
      <Empty icon={CircleCheck} title={run.task.verify ? t("runs.notChecked") : t("runs.noChecks")}>
        <Coded text={run.task.verify ? t("runs.notCheckedHint") : t("runs.noChecksHint")} />
      </Empty>
    );
  return (
    <div className={styles.checks}>
      {score !== null && score !== undefined && (
        <p className={styles.score}>{t("runs.scoreIs", { score: percent(score, i18n.language) })}</p>
      )}
      {checks.map((check, index) => (
        <Fold
          key={index}
          icon={check.passed ? CircleCheck : CircleX}
          title={check.name}
          about={duration(check.seconds)}
          open={!check.passed}
          badge={
            <>
              {!check.required && <Badge>{t("runs.optional")}</Badge>}
              {check.weight !== 1 && <Badge>{t("runs.weight", { weight: check.weight })}</Badge>}
              <Badge tone={check.passed ? "good" : "danger"}>
                {check.passed ? t("runs.passed") : t("runs.notPassed")}
              </Badge>
            </>
          }
        >
          <p className={styles.soft}>
            {typeof check.exitCode === "number" ? t("runs.exitCode", { code: check.exitCode }) : t("runs.noExit")}
          </p>
          {check.output ? <Output text={check.output} /> : <p className={styles.soft}>{t("runs.noOutput")}</p>}
        </Fold>
      ))}
    </div>
  );
}
