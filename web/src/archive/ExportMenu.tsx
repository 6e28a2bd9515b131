import { Download } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { download } from "@/api/client";
import { Button } from "@/ui/Button";
import { Menu } from "@/ui/Menu";
import { toastError } from "@/ui/toasts";

/** Saves conversations as lines of JSON, in the form of one API or the other. */
export function ExportMenu({ query, name }: { query: Record<string, string | number>; name: string }) {
  const { t } = useTranslation();
  const [busy, setBusy] = useState(false);
  const save = async (form: "openai" | "anthropic") => {
    setBusy(true);
    await download("/v1/exchanges/export", `${name}.${form}.jsonl`, { ...query, form }).catch(toastError);
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
