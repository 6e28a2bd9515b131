import { FilePlus2, FileText, FolderGit2, Paperclip, Upload, X } from "lucide-react";
import { type DragEvent, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Badge } from "@/ui/controls/Badge";
import { Button, IconButton } from "@/ui/controls/Button";
import { TextArea, TextInput } from "@/ui/controls/forms";
import { showErrorToast } from "@/ui/controls/toasts";
import { formatBytes } from "@/ui/format/formats";
import { readChosenFiles, readDroppedFiles } from "./dropped-files";
import styles from "./form.module.css";
import {
  type AttachedFiles,
  type Attachments,
  attachFilesToInputs,
  type TaskInput,
  taskInputs,
  taskInputTarget,
} from "./input-bundle";
import { type TaskEditing, useFieldHint, useFieldLabel } from "./TaskFieldControl";
import { problemAtPath } from "./task-problems";
import type { TaskFieldSpec } from "./task-schema-fields";

interface Props {
  spec: TaskFieldSpec;
  editing: TaskEditing;
  attachments: Attachments;
  onAttach: (attachments: Attachments) => void;
  /** Named files are on the server, beside the task file. */
  onServer: boolean;
}

/** Input files of the workspace: dropped files and texts. */
export function InputFiles({ spec, editing, attachments, onAttach, onServer }: Props) {
  const { t } = useTranslation();
  const label = useFieldLabel(spec);
  const hint = useFieldHint(spec);
  const picker = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const inputs = taskInputs(editing.task);
  const save = (next: TaskInput[]) =>
    editing.set(
      spec.path,
      next.map((each) => (each.source !== undefined && Object.keys(each).length === 1 ? each.source : each)),
    );
  const changeInput = (index: number, more: TaskInput) =>
    save(inputs.map((each, at) => (at === index ? { ...each, ...more } : each)));
  const addFiles = (chosenFiles: Record<string, AttachedFiles>) => {
    const { attachments: next, added } = attachFilesToInputs(inputs, attachments, chosenFiles);
    onAttach(next);
    if (added.length > 0) save([...inputs, ...added.map((source) => ({ source }))]);
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    readDroppedFiles(event.dataTransfer).then(addFiles, showErrorToast);
  };
  return (
    <fieldset className={styles.group}>
      <legend>{label}</legend>
      {hint && <p className={styles.hint}>{hint}</p>}
      {inputs.map((input, index) => (
        <InputRow
          key={index}
          input={input}
          attached={attachments[input.source ?? ""]}
          onServer={onServer}
          error={problemAtPath(editing.problems, [...spec.path, index])}
          onChange={(more) => changeInput(index, more)}
          onRemove={() => save(inputs.filter((_, at) => at !== index))}
        />
      ))}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: dropping is a shortcut for the buttons inside. */}
      <div
        className={over ? styles.dropOver : styles.drop}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      >
        <Upload size={18} aria-hidden />
        <span>{t("runs.form.drop")}</span>
        <span className={styles.dropButtons}>
          <Button size="small" icon={FilePlus2} onClick={() => picker.current?.click()}>
            {t("runs.form.choose")}
          </Button>
          <Button size="small" icon={FileText} onClick={() => save([...inputs, { target: "", content: "" }])}>
            {t("runs.form.addText")}
          </Button>
        </span>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-label={t("runs.form.choose")}
          onChange={(event) => {
            if (event.target.files) addFiles(readChosenFiles(event.target.files));
            event.target.value = "";
          }}
        />
      </div>
    </fieldset>
  );
}

interface InputRowProps {
  input: TaskInput;
  attached: AttachedFiles | undefined;
  onServer: boolean;
  error: string | null;
  onChange: (more: TaskInput) => void;
  onRemove: () => void;
}

function InputRow({ input, attached, onServer, error, onChange, onRemove }: InputRowProps) {
  const { t } = useTranslation();
  const name = input.source ?? input.git ?? (input.target || t("runs.form.text"));
  const bytes = attached?.files.reduce((total, { file }) => total + file.size, 0) ?? 0;
  return (
    <div className={styles.entry}>
      <div className={styles.row}>
        {input.content === undefined && (
          <span className={styles.source}>
            {input.git ? <FolderGit2 size={15} aria-hidden /> : <Paperclip size={15} aria-hidden />}
            <span className={styles.sourceName}>{name}</span>
            {attached ? (
              <Badge tone="good">
                {attached.directory
                  ? t("runs.form.attachedFiles", { count: attached.files.length, size: formatBytes(bytes) })
                  : formatBytes(bytes)}
              </Badge>
            ) : onServer ? (
              <Badge>{t("runs.form.onServer")}</Badge>
            ) : (
              <Badge tone="warning">{t("runs.form.notAttached")}</Badge>
            )}
          </span>
        )}
        <TextInput
          className={styles.mono}
          aria-label={t("runs.form.targetOf", { name })}
          placeholder={input.content === undefined ? taskInputTarget(input) : "notes.txt"}
          spellCheck={false}
          value={input.target ?? ""}
          onChange={(event) =>
            onChange({ target: event.target.value || (input.content === undefined ? undefined : "") })
          }
        />
        <IconButton icon={X} label={t("runs.form.remove", { name })} onClick={onRemove} />
      </div>
      {input.content !== undefined && (
        <TextArea
          className={styles.mono}
          rows={4}
          aria-label={t("runs.form.contentOf", { name })}
          value={input.content}
          onChange={(event) => onChange({ content: event.target.value })}
        />
      )}
      {error && <p className={styles.error}>{error}</p>}
    </div>
  );
}
