import { useEffect, useRef } from "react";
import { useTranslation } from "react-i18next";
import { Field, Select, TextArea } from "@/ui/controls/forms";
import styles from "./network.module.css";
import {
  chooseNetwork,
  describePolicy,
  NETWORK_CHOICES,
  type NetworkChoice,
  type NetworkDraft,
} from "./network-policy";

interface Props {
  draft: NetworkDraft;
  onChange: (draft: NetworkDraft) => void;
  /** Offers the default: its policy, or null if the console does not know it. */
  defaultPolicy?: readonly string[] | null;
  /** What "no network" means here, if it is not nothing at all. */
  noneHint?: string;
  error?: string | null;
}

/** Choice of a network policy: a preset, or own rules. */
export function NetworkPolicyFields({ draft, onChange, defaultPolicy, noneHint, error }: Props) {
  const { t } = useTranslation();
  const choices = NETWORK_CHOICES.filter((choice) => choice !== "default" || defaultPolicy !== undefined);
  const own = draft.choice === "own";
  const about = draft.choice === "none" && noneHint ? noneHint : t(`network.about.${draft.choice}`);
  const rules = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!error || !rules.current) return;
    rules.current.querySelector("textarea")?.focus({ preventScroll: true });
    rules.current.scrollIntoView({ block: "nearest" });
  }, [error]);
  return (
    <>
      <Field label={t("network.title")} hint={about} error={own ? null : error}>
        <Select
          value={draft.choice}
          onChange={(choice) => onChange(chooseNetwork(draft, choice as NetworkChoice, defaultPolicy ?? []))}
          options={choices.map((choice) => ({
            value: choice,
            label:
              choice === "default" && defaultPolicy
                ? t("network.defaultOf", { policy: describePolicy(defaultPolicy) })
                : t(`chat.networks.${choice}`),
          }))}
        />
      </Field>
      {own && (
        <div ref={rules}>
          <Field label={t("network.rulesField")} hint={t("network.rulesHint")} error={error}>
            <TextArea
              rows={4}
              className={styles.ruleText}
              spellCheck={false}
              autoCapitalize="off"
              placeholder={"allow pypi.org:443\nallow *.example.com:443\ndeny 203.0.113.0/24"}
              value={draft.rules}
              onChange={(event) => onChange({ ...draft, rules: event.target.value })}
            />
          </Field>
        </div>
      )}
    </>
  );
}
