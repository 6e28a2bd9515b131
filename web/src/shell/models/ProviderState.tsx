import { useTranslation } from "react-i18next";
import type { Schema } from "@/api/types";
import { Badge } from "@/ui/controls/Badge";
import { RelativeTime } from "@/ui/format/formats";
import { translateServerText } from "@/ui/format/server-text";

/** State of a provider: key refused, unreachable, failing, or OK. */
export function ProviderState({ provider }: { provider: Schema<"ProviderResponse"> }) {
  const { t } = useTranslation();
  if (provider.keyRefusedAt)
    return (
      <Badge tone="danger">
        {t("shell.provider.keyRefused")} · <RelativeTime at={provider.keyRefusedAt} />
      </Badge>
    );
  if (provider.unreached && !provider.failing)
    return (
      <Badge tone="warning" title={provider.listProblem ? translateServerText(provider.listProblem) : undefined}>
        {t("shell.provider.unreached")}
      </Badge>
    );
  return (
    <Badge tone={provider.failing ? "danger" : "good"}>
      {t(provider.failing ? "shell.provider.failing" : "shell.provider.fine")}
    </Badge>
  );
}
