import { FilePlus2, FileText, FolderGit2, Paperclip, Upload, X } from "lucide-react";
import { type DragEvent, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Badge } from "@/ui/Badge";
import { Button, IconButton } from "@/ui/Button";
import { TextArea, TextInput } from "@/ui/forms";
import { size } from "@/ui/Time";
import { toastError } from "@/ui/toasts";
import { type Attached, type Attachments, attach, type Input, inputsOf, targetOf } from "./bundle";
import { type Editing, useHint, useLabel } from "./Control";
import { chosen, dropped } from "./drop";
import type { FieldSpec } from "./fields";
import styles from "./form.module.css";
import { problemAt } from "./problems";

interface Props {
  spec: FieldSpec;
  editing: Editing;
  attachments: Attachments;
  onAttach: (attachments: Attachments) => void;
  /** Files that are named lie on the server, beside the task's file, and are taken from there. */
  onServer: boolean;
}

/** What the agent finds in its workspace: files that are dropped here, and texts. */
export function Inputs({ spec, editing, attachments, onAttach, onServer }: Props) {
  const { t } = useTranslation();
  const label = useLabel(spec);
  const hint = useHint(spec);
  const picker = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const inputs = inputsOf(editing.task);
  const save = (next: Input[]) =>
    editing.set(
      spec.path,
      next.map((each) => (each.source !== undefined && Object.keys(each).length === 1 ? each.source : each)),
    );
  const put = (index: number, more: Input) =>
    save(inputs.map((each, at) => (at === index ? { ...each, ...more } : each)));
  const take = (given: Record<string, Attached>) => {
    const { attachments: next, added } = attach(inputs, attachments, given);
    onAttach(next);
    if (added.length > 0) save([...inputs, ...added.map((source) => ({ source }))]);
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    dropped(event.dataTransfer).then(take, toastError);
  };
  return (
    <fieldset className={styles.group}>
      <legend>{label}</legend>
      {hint && <p className={styles.hint}>{hint}</p>}
      {inputs.map((input, index) => (
        <Row
          key={index}
          input={input}
          attached={attachments[input.source ?? ""]}
          onServer={onServer}
          error={problemAt(editing.problems, [...spec.path, index])}
          onChange={(more) => put(index, more)}
          onRemove={() => save(inputs.filter((_, at) => at !== index))}
        />
      ))}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: dropping is a short cut; the buttons in it do the same. */}
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
            if (event.target.files) take(chosen(event.target.files));
            event.target.value = "";
          }}
        />
      </div>
    </fieldset>
  );
}

interface RowProps {
  input: Input;
  attached: Attached | undefined;
  onServer: boolean;
  error: string | null;
  onChange: (more: Input) => void;
  onRemove: () => void;
}

function Row({ input, attached, onServer, error, onChange, onRemove }: RowProps) {
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
                  ? t("runs.form.attachedFiles", { count: attached.files.length, size: size(bytes) })
                  : size(bytes)}
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
          placeholder={input.content === undefined ? targetOf(input) : "notes.txt"}
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
