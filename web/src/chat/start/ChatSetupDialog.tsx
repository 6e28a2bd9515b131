import { useTranslation } from "react-i18next";
import { NetworkPolicyFields } from "@/sandbox-panel/network/NetworkPolicyFields";
import { DEFAULT_NETWORK, defaultNetworkOfKinds, isNetworkDraftEmpty } from "@/sandbox-panel/network/network-policy";
import { ModelField } from "@/shell/models/ModelField";
import type { ServerFacts } from "@/shell/status/server-facts";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { Field, Select } from "@/ui/controls/forms";
import { Switch } from "@/ui/controls/Switch";
import type { ChatSetup } from "./chat-setup";
import { SandboxKindPicker } from "./SandboxKindPicker";
import styles from "./start.module.css";

interface Props {
  facts: ServerFacts;
  setup: ChatSetup;
  onChange: (part: Partial<ChatSetup>) => void;
  onClose: () => void;
  /** Why the server refused the network policy. */
  networkError: string | null;
}

/** Settings of a new chat. */
export function ChatSetupDialog({ facts, setup, onChange, onClose, networkError }: Props) {
  const { t } = useTranslation();
  const agent = facts.agents.chat.find((each) => each.name === setup.agent);
  const network = setup.network ?? DEFAULT_NETWORK;
  return (
    <Dialog
      open
      onClose={onClose}
      title={t("chat.setup")}
      footer={
        <Button tone="accent" disabled={isNetworkDraftEmpty(network)} onClick={onClose}>
          {t("chat.done")}
        </Button>
      }
    >
      <Field label={t("chat.agentLabel")} hint={agent?.description}>
        <Select
          value={setup.agent}
          onChange={(name) => onChange({ agent: name })}
          options={facts.agents.chat.map((each) => ({
            value: each.name,
            label: each.ready ? each.name : t("chat.agentMissing", { name: each.name, missing: each.missing ?? "" }),
          }))}
        />
      </Field>
      <ModelField
        value={setup.model}
        models={facts.models.items}
        patterns={facts.models.patterns}
        onChange={(model) => onChange({ model })}
      />
      <SandboxKindPicker kinds={facts.kinds} chosen={setup.kinds} onChange={(kinds) => onChange({ kinds })} />
      <NetworkPolicyFields
        draft={network}
        onChange={(next) => onChange({ network: next.choice === "default" ? null : next })}
        defaultPolicy={defaultNetworkOfKinds(facts.kinds, setup.kinds)}
        error={networkError}
      />
      <div>
        <Switch label={t("chat.askFirst")} checked={setup.ask} onChange={(ask) => onChange({ ask })} />
        <p className={styles.soft}>{setup.ask ? t("chat.askFirstOn") : t("chat.askFirstOff")}</p>
      </div>
    </Dialog>
  );
}
