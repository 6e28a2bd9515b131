import { useTranslation } from "react-i18next";
import type { Schema } from "@/api/types";
import { Badge } from "@/ui/Badge";
import { Time } from "@/ui/Time";

/** How a provider of models does: its key was refused, it was not reached, it keeps failing, or nothing is known to be wrong. */
export function ProviderState({ provider }: { provider: Schema<"ProviderSaid"> }) {
  const { t } = useTranslation();
  if (provider.keyRefusedAt)
    return (
      <Badge tone="danger">
        {t("shell.provider.keyRefused")} · <Time at={provider.keyRefusedAt} />
      </Badge>
    );
  if (provider.unreached && !provider.failing)
    return (
      <Badge tone="warning" title={provider.listProblem ?? undefined}>
        {t("shell.provider.unreached")}
      </Badge>
    );
  return (
    <Badge tone={provider.failing ? "danger" : "good"}>
      {t(provider.failing ? "shell.provider.failing" : "shell.provider.fine")}
    </Badge>
  );
}
