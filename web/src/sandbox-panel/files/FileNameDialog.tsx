import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/controls/Button";
import { Dialog } from "@/ui/controls/Dialog";
import { Field, TextInput } from "@/ui/controls/forms";
import { errorText } from "@/ui/format/error-text";
import type { FileEntry } from "./sandbox-files";
import { fileNameProblem } from "./sandbox-paths";

export type NamingRequest = { type: "file" | "directory"; directory: string } | { type: "rename"; entry: FileEntry };

interface Props {
  request: NamingRequest | null;
  onClose: () => void;
  createEntry: (directory: string, name: string, type: "file" | "directory") => Promise<string>;
  renameEntry: (entry: FileEntry, name: string) => Promise<string | null>;
  onDone: (path: string, type: NamingRequest["type"]) => void;
}

/** Dialog for the name of a new entry, or the new name of an existing one. */
export function FileNameDialog({ request, onClose, createEntry, renameEntry, onDone }: Props) {
  const { t } = useTranslation();
  const [name, setName] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    setName(request?.type === "rename" ? request.entry.name : "");
    setProblem(null);
  }, [request]);
  const run = async () => {
    if (!request) return;
    const problemKey = fileNameProblem(name);
    if (problemKey) return setProblem(t(`sandboxPanel.files.names.${problemKey}`));
    setBusy(true);
    try {
      const path =
        request.type === "rename"
          ? await renameEntry(request.entry, name)
          : await createEntry(request.directory, name, request.type);
      onClose();
      if (path) onDone(path, request.type);
    } catch (error) {
      setProblem(errorText(error));
    } finally {
      setBusy(false);
    }
  };
  const title = request ? t(`sandboxPanel.files.naming.${request.type}`) : "";
  return (
    <Dialog
      open={request !== null}
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
