import { CircleCheck, CircleX } from "lucide-react";
import { useTranslation } from "react-i18next";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { FoldableSection, ProgramOutput } from "@/ui/content/Transcript";
import { Badge } from "@/ui/controls/Badge";
import { formatDuration } from "@/ui/format/formats";
import { EmptyState } from "@/ui/layout/query-states";
import type { RunDetail } from "./api";
import styles from "./run.module.css";
import { formatPercent } from "./run-metrics";

/** Results of the task's checks, and the score. */
export function CheckResults({ run }: { run: RunDetail }) {
  const { t, i18n } = useTranslation();
  const checks = run.result?.checks ?? [];
  const score = run.result?.score;
  if (checks.length === 0)
    return (
      <EmptyState icon={CircleCheck} title={run.task.verify ? t("runs.notChecked") : t("runs.noChecks")}>
        <TextWithCode text={run.task.verify ? t("runs.notCheckedHint") : t("runs.noChecksHint")} />
      </EmptyState>
    );
  return (
    <div className={styles.checks}>
      {score !== null && score !== undefined && (
        <p className={styles.score}>{t("runs.scoreIs", { score: formatPercent(score, i18n.language) })}</p>
      )}
      {checks.map((check, index) => (
        <FoldableSection
          key={index}
          icon={check.passed ? CircleCheck : CircleX}
          title={check.name}
          about={formatDuration(check.seconds)}
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
          {check.output ? <ProgramOutput text={check.output} /> : <p className={styles.soft}>{t("runs.noOutput")}</p>}
        </FoldableSection>
      ))}
    </div>
  );
}
