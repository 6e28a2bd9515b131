import { Check, ChevronDown, Circle, CircleDashed, Minus } from "lucide-react";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import type { PlanStep, SessionState } from "@/api/types";
import { useStoredState } from "@/ui/hooks/browser-storage";
import styles from "./AgentPlan.module.css";

const ICONS = { pending: Circle, running: CircleDashed, done: Check, dropped: Minus };

/** The agent's plan above the composer; folded it shows only the current step. */
export function AgentPlan({ steps, state }: { steps: readonly PlanStep[]; state: SessionState }) {
  const { t } = useTranslation();
  const active = state !== "idle";
  const [expandedByDefault, setExpandedByDefault] = useStoredState("chat.plan", true);
  const [override, setOverride] = useState<boolean | null>(null);
  // One line is enough when no step is in progress.
  const open = override ?? (expandedByDefault && active);
  const setOpen = (next: boolean) => {
    setOverride(next);
    if (active) setExpandedByDefault(next);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: the user's choice holds until work starts or ends.
  useEffect(() => setOverride(null), [active]);
  const countedSteps = steps.filter((step) => step.state !== "dropped");
  const done = countedSteps.filter((step) => step.state === "done").length;
  const current = steps.find((step) => step.state === "running") ?? steps.find((step) => step.state === "pending");
  if (!steps.length) return null;
  return (
    <section className={styles.plan} data-live={state === "running"} aria-label={t("chat.plan")}>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <strong>{t("chat.plan")}</strong>
        <span className={styles.soft}>{t("chat.planDone", { done, count: countedSteps.length })}</span>
        {!open && current && <span className={styles.planNow}>{current.title}</span>}
        <ChevronDown size={15} aria-hidden className={styles.planChevron} data-open={open} />
      </button>
      {open && (
        <ol>
          {steps.map((step, index) => {
            const Icon = ICONS[step.state];
            return (
              <li key={index} data-state={step.state}>
                <Icon size={15} aria-hidden />
                <span>{step.title}</span>
                <span className="visually-hidden">{t(`chat.steps.${step.state}`)}</span>
              </li>
            );
          })}
        </ol>
      )}
    </section>
  );
}
