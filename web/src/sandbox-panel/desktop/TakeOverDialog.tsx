import { useTranslation } from "react-i18next";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { safeDisplayName } from "../files/sandbox-paths";

/** Confirmation before taking control from another person. `name` is null while the dialog is closed. */
export function TakeOverDialog({
  name,
  onClose,
  onTake,
}: {
  name: string | null;
  onClose: () => void;
  onTake: () => void;
}) {
  const { t } = useTranslation();
  const holderName = safeDisplayName(name || t("sandboxPanel.input.somebody"));
  return (
    <Dialog
      open={name !== null}
      onClose={onClose}
      title={t("sandboxPanel.input.takeOverTitle", { name: holderName })}
      footer={
        <>
          <Button onClick={onClose}>{t("sandboxPanel.input.keepWatching")}</Button>
          <Button tone="accent" onClick={onTake}>
            {t("sandboxPanel.input.takeOver")}
          </Button>
        </>
      }
    >
      <p>{t("sandboxPanel.input.takeOverHint", { name: holderName })}</p>
    </Dialog>
  );
}
