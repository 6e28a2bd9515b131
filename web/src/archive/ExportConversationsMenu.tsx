import { Download } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { downloadFile } from "@/api/client";
import { Button } from "@/ui/controls/Button";
import { Menu } from "@/ui/controls/Menu";
import { showErrorToast } from "@/ui/controls/toasts";

/** Download conversations as JSON lines, in one API format or the other. */
export function ExportConversationsMenu({ query, name }: { query: Record<string, string | number>; name: string }) {
  const { t } = useTranslation();
  const [busy, setBusy] = useState(false);
  const save = async (form: "openai" | "anthropic") => {
    setBusy(true);
    await downloadFile("/v1/exchanges/export", `${name}.${form}.jsonl`, { ...query, form }).catch(showErrorToast);
    setBusy(false);
  };
  return (
    <Menu
      trigger={
        <Button icon={Download} busy={busy}>
          {t("archive.export")}
        </Button>
      }
      items={[
        { label: t("archive.exportOpenai"), onSelect: () => void save("openai") },
        { label: t("archive.exportAnthropic"), onSelect: () => void save("anthropic") },
      ]}
    />
  );
}
