import { Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import type { Policy, PolicyAction, PolicyRule } from "@/api/types";
import { NetworkPolicyFields } from "@/sandbox-panel/network/NetworkPolicyFields";
import {
  defaultNetworkOfKinds,
  isNetworkDraftEmpty,
  isNetworkError,
  networkErrorText,
} from "@/sandbox-panel/network/network-policy";
import type { SessionView } from "@/session/types";
import { ModelField } from "@/shell/models/ModelField";
import { useServerFacts } from "@/shell/status/server-facts";
import { Button, IconButton } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { Field, Select, TextArea, TextInput } from "@/ui/controls/forms";
import { Switch } from "@/ui/controls/Switch";
import { showErrorToast } from "@/ui/controls/toasts";
import { SandboxKindPicker } from "./SandboxKindPicker";
import { type SessionSettingsDraft, sessionSettingsDraft, sessionSettingsPatch } from "./session-settings-patch";
import styles from "./start.module.css";

interface Props {
  view: SessionView;
  onClose: () => void;
  onChange: (patch: ReturnType<typeof sessionSettingsPatch>) => Promise<void>;
}

/** Settings of an existing chat; changes apply from the agent's next step. */
export function SessionSettingsDialog({ view, onClose, onChange }: Props) {
  const { t } = useTranslation();
  const server = useServerFacts();
  const [draft, setDraft] = useState<SessionSettingsDraft>(() => sessionSettingsDraft(view));
  const [busy, setBusy] = useState(false);
  const [networkError, setNetworkError] = useState<string | null>(null);
  const set = (part: Partial<SessionSettingsDraft>) => setDraft({ ...draft, ...part });
  const isBudgetInvalid = draft.budget.trim() !== "" && !/^[1-9]\d*$/.test(draft.budget.trim());
  const save = async () => {
    setBusy(true);
    try {
      await onChange(sessionSettingsPatch(view, draft));
      onClose();
    } catch (error) {
      if (isNetworkError(error)) setNetworkError(networkErrorText(error));
      else showErrorToast(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog
      open
      onClose={onClose}
      title={t("chat.settings")}
      footer={
        <>
          <Button onClick={onClose}>{t("common.cancel")}</Button>
          <Button
            tone="accent"
            busy={busy}
            disabled={isBudgetInvalid || isNetworkDraftEmpty(draft.network)}
            onClick={() => void save()}
          >
            {t("common.save")}
          </Button>
        </>
      }
    >
      <p className={styles.soft}>{t("chat.countsFromNextStep")}</p>
      <ModelField
        value={draft.model}
        models={server.data?.models.items ?? []}
        patterns={server.data?.models.patterns ?? []}
        onChange={(model) => set({ model })}
      />
      <SandboxKindPicker kinds={server.data?.kinds ?? []} chosen={draft.kinds} onChange={(kinds) => set({ kinds })} />
      <NetworkPolicyFields
        draft={draft.network}
        onChange={(network) => {
          setNetworkError(null);
          set({ network });
        }}
        defaultPolicy={defaultNetworkOfKinds(server.data?.kinds ?? [], draft.kinds)}
        error={networkError}
      />
      <PolicyEditor kinds={draft.kinds} policy={draft.policy} onChange={(policy) => set({ policy })} />
      <Field label={t("chat.instructions")} hint={t("chat.instructionsHint")}>
        <TextArea rows={4} value={draft.instructions} onChange={(event) => set({ instructions: event.target.value })} />
      </Field>
      <Field
        label={t("chat.budget")}
        hint={t("chat.budgetHint")}
        error={isBudgetInvalid ? t("chat.budgetWrong") : null}
      >
        <TextInput inputMode="numeric" value={draft.budget} onChange={(event) => set({ budget: event.target.value })} />
      </Field>
    </Dialog>
  );
}

function PolicyEditor(props: { kinds: readonly string[]; policy: Policy; onChange: (policy: Policy) => void }) {
  const { kinds, policy, onChange } = props;
  const { t } = useTranslation();
  const { rules, allow_all } = policy;
  const setRule = (index: number, part: Partial<PolicyRule>) =>
    onChange({ ...policy, rules: rules.map((rule, position) => (position === index ? { ...rule, ...part } : rule)) });
  return (
    <>
      {kinds.map((kind) => (
        <Switch
          key={kind}
          label={t("chat.allowAllIn", { kind })}
          checked={allow_all.includes(kind) || allow_all.includes("*")}
          onChange={(on) => {
            const rest = (allow_all.includes("*") ? [...kinds] : allow_all).filter((each) => each !== kind);
            onChange({ ...policy, allow_all: on ? [...rest, kind] : rest });
          }}
        />
      ))}
      <div className={styles.rules}>
        <div className={styles.rulesHead}>
          <h3>{t("chat.rules")}</h3>
          <Button
            size="small"
            icon={Plus}
            onClick={() =>
              onChange({
                ...policy,
                rules: [...rules, { tool: "*", kind: "*", arguments: {}, exact: false, action: "ask" }],
              })
            }
          >
            {t("chat.addRule")}
          </Button>
        </div>
        <p className={styles.soft}>{t("chat.rulesHint")}</p>
        {rules.map((rule, index) => (
          <div key={index} className={styles.rule}>
            <TextInput
              aria-label={t("chat.ruleTool")}
              value={rule.tool}
              onChange={(event) => setRule(index, { tool: event.target.value })}
            />
            <TextInput
              aria-label={t("chat.ruleKind")}
              value={rule.kind}
              onChange={(event) => setRule(index, { kind: event.target.value })}
            />
            <Select
              aria-label={t("chat.ruleAction")}
              value={rule.action}
              onChange={(action) => setRule(index, { action: action as PolicyAction })}
              options={(["allow", "ask", "deny"] as const).map((value) => ({
                value,
                label: t(`chat.actions.${value}`),
              }))}
            />
            <IconButton
              size="small"
              icon={Trash2}
              label={t("chat.removeRule")}
              onClick={() => onChange({ ...policy, rules: rules.filter((_, position) => position !== index) })}
            />
            {Object.keys(rule.arguments).length > 0 && (
              <code className={styles.exact}>{JSON.stringify(rule.arguments)}</code>
            )}
          </div>
        ))}
      </div>
    </>
  );
}
