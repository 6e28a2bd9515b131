import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/controls/Button";
import { safeDisplayName } from "../files/sandbox-paths";
import styles from "./network.module.css";
import { choiceOfPolicy, describePolicy, presetOfRule } from "./network-policy";
import type { SandboxNetwork } from "./useSandboxNetwork";

const MAX_SHOWN_RULES = 6;
const NO_BOUND = "allow open";

/** Policy of a sandbox in short words, with its rules and what limits it. */
export function NetworkPolicySummary({ network, onChange }: { network: SandboxNetwork; onChange?: () => void }) {
  const { t } = useTranslation();
  const { policy, effective, bounds } = network;
  const choice = choiceOfPolicy(policy);
  const isExpanded = effective.length !== policy.length || effective.some((rule, index) => rule !== policy[index]);
  return (
    <section className={styles.card} aria-labelledby="network-policy">
      <div className={styles.head}>
        <h2 id="network-policy">{t("network.policy")}</h2>
        {onChange && (
          <Button size="small" onClick={onChange}>
            {t("network.change")}
          </Button>
        )}
      </div>
      <p>
        <strong>{describePolicy(policy)}</strong>
        <span className={styles.about}>{t(`network.about.${choice}`)}</span>
      </p>
      {choice === "own" && <RuleList rules={policy} explain />}
      {policy.length > 0 && isExpanded && (
        <details className={styles.details}>
          <summary>{t("network.effective", { count: effective.length })}</summary>
          <RuleList rules={effective} />
        </details>
      )}
      {policy.length > 0 && !(bounds.length === 1 && bounds[0] === NO_BOUND) && (
        <div className={styles.bounds}>
          <p>{t(bounds.length ? "network.bounds" : "network.boundNone")}</p>
          {bounds.length > 0 && <RuleList rules={bounds} />}
        </div>
      )}
    </section>
  );
}

/** Rules in order; with `explain`, presets have a description. */
function RuleList({ rules, explain }: { rules: readonly string[]; explain?: boolean }) {
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  return (
    <>
      <ol className={styles.rules}>
        {(all ? rules : rules.slice(0, MAX_SHOWN_RULES)).map((rule, index) => {
          const preset = explain && presetOfRule(rule);
          return (
            <li key={index} data-action={rule.startsWith("deny") ? "deny" : "allow"}>
              <code>{safeDisplayName(rule)}</code>
              {preset && <span className={styles.soft}>{t(`network.about.${preset}`)}</span>}
            </li>
          );
        })}
      </ol>
      {!all && rules.length > MAX_SHOWN_RULES && (
        <Button size="small" tone="quiet" onClick={() => setAll(true)}>
          {t("network.allRules", { count: rules.length })}
        </Button>
      )}
    </>
  );
}
