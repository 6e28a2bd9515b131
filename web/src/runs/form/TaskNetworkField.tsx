import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { NetworkPolicyFields } from "@/sandbox-panel/network/NetworkPolicyFields";
import type { NetworkDraft } from "@/sandbox-panel/network/network-policy";
import styles from "./form.module.css";
import type { TaskEditing } from "./TaskFieldControl";
import { networkDraftFromTask, taskNetworkFromDraft } from "./task-network";
import { problemAtPath } from "./task-problems";

/** Network policy of a task: a preset, or own rules. */
export function TaskNetworkField({ editing }: { editing: TaskEditing }) {
  const { t } = useTranslation();
  const value = editing.task.network;
  const valueText = JSON.stringify(value);
  const [draft, setDraft] = useState<NetworkDraft>(() => networkDraftFromTask(value));
  const sentText = useRef(valueText);
  useEffect(() => {
    // The value was changed by the YAML editor.
    if (valueText !== sentText.current) setDraft(networkDraftFromTask(valueText ? JSON.parse(valueText) : undefined));
    sentText.current = valueText;
  }, [valueText]);
  const change = (next: NetworkDraft) => {
    const policy = taskNetworkFromDraft(next);
    sentText.current = JSON.stringify(policy);
    setDraft(next);
    editing.set(["network"], policy);
  };
  return (
    <div className={styles.network}>
      <NetworkPolicyFields
        draft={draft}
        onChange={change}
        noneHint={t("runs.hint.network")}
        error={problemAtPath(editing.problems, ["network"])}
      />
    </div>
  );
}
