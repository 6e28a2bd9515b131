import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/Button";
import { Dialog } from "@/ui/Dialog";
import { describe } from "@/ui/describe";
import { Field, TextInput } from "@/ui/forms";
import type { Entry } from "./box-files";
import { nameProblem } from "./paths";

export type Naming = { type: "file" | "directory"; directory: string } | { type: "rename"; entry: Entry };

interface Props {
  naming: Naming | null;
  onClose: () => void;
  make: (directory: string, name: string, type: "file" | "directory") => Promise<string>;
  rename: (entry: Entry, name: string) => Promise<string | null>;
  onDone: (path: string, type: Naming["type"]) => void;
}

/** Asks what something new, or something old, is to be called. */
export function NameDialog({ naming, onClose, make, rename, onDone }: Props) {
  const { t } = useTranslation();
  const [name, setName] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    setName(naming?.type === "rename" ? naming.entry.name : "");
    setProblem(null);
  }, [naming]);
  const run = async () => {
    if (!naming) return;
    const wrong = nameProblem(name);
    if (wrong) return setProblem(t(`computers.files.names.${wrong}`));
    setBusy(true);
    try {
      const path =
        naming.type === "rename" ? await rename(naming.entry, name) : await make(naming.directory, name, naming.type);
      onClose();
      if (path) onDone(path, naming.type);
    } catch (error) {
      setProblem(describe(error));
    } finally {
      setBusy(false);
    }
  };
  const title = naming ? t(`computers.files.naming.${naming.type}`) : "";
  return (
    <Dialog
      open={naming !== null}
      onClose={onClose}
      title={title}
      footer={
        <>
          <Button onClick={onClose}>{t("common.cancel")}</Button>
          <Button tone="accent" busy={busy} onClick={() => void run()}>
            {t("common.save")}
          </Button>
        </>
      }
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void run();
        }}
      >
        <Field label={t("computers.files.name")} error={problem}>
          <TextInput
            value={name}
            onChange={(event) => {
              setName(event.target.value);
              setProblem(null);
            }}
            spellCheck={false}
            autoComplete="off"
          />
        </Field>
      </form>
    </Dialog>
  );
}
