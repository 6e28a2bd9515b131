import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { Field, TextInput } from "@/ui/controls/forms";
import { errorText } from "@/ui/format/error-text";
import type { FileEntry } from "./sandbox-files";
import { nameProblem } from "./sandbox-paths";

export type NamingRequest = { type: "file" | "directory"; directory: string } | { type: "rename"; entry: FileEntry };

interface Props {
  naming: NamingRequest | null;
  onClose: () => void;
  make: (directory: string, name: string, type: "file" | "directory") => Promise<string>;
  rename: (entry: FileEntry, name: string) => Promise<string | null>;
  onDone: (path: string, type: NamingRequest["type"]) => void;
}

/** Asks for the name of a new entry, or the new name of an existing one. */
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
    if (wrong) return setProblem(t(`sandboxPanel.files.names.${wrong}`));
    setBusy(true);
    try {
      const path =
        naming.type === "rename" ? await rename(naming.entry, name) : await make(naming.directory, name, naming.type);
      onClose();
      if (path) onDone(path, naming.type);
    } catch (error) {
      setProblem(errorText(error));
    } finally {
      setBusy(false);
    }
  };
  const title = naming ? t(`sandboxPanel.files.naming.${naming.type}`) : "";
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
        <Field label={t("sandboxPanel.files.name")} error={problem}>
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
