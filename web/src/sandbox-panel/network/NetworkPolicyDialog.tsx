import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { showToast } from "@/ui/controls/toasts";
import { sandboxApiPath } from "../sandbox-queries";
import { NetworkPolicyFields } from "./NetworkPolicyFields";
import styles from "./network.module.css";
import { isNetworkDraftEmpty, networkDraftFromPolicy, networkErrorText, policyFromDraft } from "./network-policy";
import { networkQueryKey, type SandboxNetwork } from "./useSandboxNetwork";

interface Props {
  sandbox: string;
  policy: readonly string[];
  onClose: () => void;
}

/** Dialog that replaces the network policy of a sandbox. */
export function NetworkPolicyDialog({ sandbox, policy, onClose }: Props) {
  const { t } = useTranslation();
  const queries = useQueryClient();
  const form = useId();
  const [draft, setDraft] = useState(() => networkDraftFromPolicy(policy));
  const change = useMutation({
    mutationFn: () => api.put<SandboxNetwork>(`${sandboxApiPath(sandbox)}/network`, { policy: policyFromDraft(draft) }),
    onSuccess: async (network) => {
      await queries.cancelQueries({ queryKey: networkQueryKey(sandbox) });
      queries.setQueryData(networkQueryKey(sandbox), network);
      showToast(t("network.changed"), { tone: "good" });
      onClose();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!isNetworkDraftEmpty(draft)) change.mutate();
  };
  return (
    <Dialog
      open
      onClose={onClose}
      title={t("network.changeTitle")}
      footer={
        <>
          <Button onClick={onClose}>{t("common.cancel")}</Button>
          <Button tone="accent" type="submit" form={form} busy={change.isPending} disabled={isNetworkDraftEmpty(draft)}>
            {t("common.save")}
          </Button>
        </>
      }
    >
      <form id={form} onSubmit={submit} className={styles.form}>
        <NetworkPolicyFields
          draft={draft}
          onChange={(next) => {
            change.reset();
            setDraft(next);
          }}
          error={change.error ? networkErrorText(change.error) : null}
        />
        <p className={styles.soft}>{t("network.changeHint")}</p>
      </form>
    </Dialog>
  );
}
