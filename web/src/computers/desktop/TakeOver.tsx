import { useTranslation } from "react-i18next";
import { Button } from "@/ui/Button";
import { Dialog } from "@/ui/Dialog";
import { shown } from "../files/paths";

/** Somebody else has the input: are they to lose it? `name` is null while there is nothing to ask. */
export function TakeOver({ name, onClose, onTake }: { name: string | null; onClose: () => void; onTake: () => void }) {
  const { t } = useTranslation();
  const who = shown(name || t("computers.input.somebody"));
  return (
    <Dialog
      open={name !== null}
      onClose={onClose}
      title={t("computers.input.takeOverTitle", { name: who })}
      footer={
        <>
          <Button onClick={onClose}>{t("computers.input.keepWatching")}</Button>
          <Button tone="accent" onClick={onTake}>
            {t("computers.input.takeOver")}
          </Button>
        </>
      }
    >
      <p>{t("computers.input.takeOverHint", { name: who })}</p>
    </Dialog>
  );
}
