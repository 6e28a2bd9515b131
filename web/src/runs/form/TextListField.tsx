import { Plus, X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Button, IconButton } from "@/ui/controls/Button";
import { TextInput } from "@/ui/controls/forms";
import { Switch } from "@/ui/controls/Switch";
import styles from "./form.module.css";
import { type TaskEditing, useFieldHint, useFieldLabel } from "./TaskFieldControl";
import { problemAtPath } from "./task-problems";
import type { TaskFieldSpec } from "./task-schema-fields";
import { toList } from "./task-yaml";

type ListEntry = Record<string, unknown>;

interface Props {
  spec: TaskFieldSpec;
  editing: TaskEditing;
  /** Key that a bare value stands for. */
  mainKey: string;
  /** Second text key, shown after the main one. */
  secondaryKey?: string;
}

/** List of texts, or of mappings with that text and more: deliverables, checks. */
export function TextListField({ spec, editing, mainKey, secondaryKey }: Props) {
  const { t } = useTranslation();
  const label = useFieldLabel(spec);
  const hint = useFieldHint(spec);
  const rows = toList(editing.task[spec.path[0] ?? ""]).map(
    (each): ListEntry => (typeof each === "object" && each !== null ? (each as ListEntry) : { [mainKey]: each }),
  );
  const save = (next: ListEntry[]) =>
    editing.set(
      spec.path,
      next.map((row) => (Object.keys(row).length === 1 && mainKey in row ? row[mainKey] : row)),
    );
  const changeRow = (index: number, name: string, value: unknown) =>
    save(rows.map((row, at) => (at === index ? changeEntry(row, name, value, mainKey) : row)));
  const entryText = (name: string, row: ListEntry) => (typeof row[name] === "string" ? (row[name] as string) : "");
  return (
    <fieldset className={styles.group}>
      <legend>{label}</legend>
      {hint && <p className={styles.hint}>{hint}</p>}
      {rows.map((row, index) => {
        const error = problemAtPath(editing.problems, [...spec.path, index]);
        return (
          <div key={index} className={styles.entry}>
            <div className={styles.row}>
              {secondaryKey && (
                <TextInput
                  className={styles.secondary}
                  aria-label={`${label} ${index + 1}: ${t(`runs.field.${spec.path[0]}_${secondaryKey}`)}`}
                  placeholder={t(`runs.field.${spec.path[0]}_${secondaryKey}`)}
                  value={entryText(secondaryKey, row)}
                  onChange={(event) => changeRow(index, secondaryKey, event.target.value || undefined)}
                />
              )}
              <TextInput
                className={styles.mono}
                aria-label={`${label} ${index + 1}: ${t(`runs.field.${spec.path[0]}_${mainKey}`)}`}
                placeholder={t(`runs.field.${spec.path[0]}_${mainKey}`)}
                aria-invalid={error ? true : undefined}
                spellCheck={false}
                value={entryText(mainKey, row)}
                onChange={(event) => changeRow(index, mainKey, event.target.value)}
              />
              <Switch
                label={t("runs.form.required")}
                checked={row.required !== false}
                onChange={(on) => changeRow(index, "required", on ? undefined : false)}
              />
              <IconButton
                icon={X}
                label={t("runs.form.remove", { name: entryText(mainKey, row) || index + 1 })}
                onClick={() => save(rows.filter((_, at) => at !== index))}
              />
            </div>
            {error && <p className={styles.error}>{error}</p>}
          </div>
        );
      })}
      <div>
        <Button size="small" icon={Plus} onClick={() => save([...rows, { [mainKey]: "" }])}>
          {t(`runs.form.add_${spec.path[0]}`)}
        </Button>
      </div>
    </fieldset>
  );
}

function changeEntry(row: ListEntry, name: string, value: unknown, mainKey: string): ListEntry {
  const { [name]: _, ...rest } = row;
  return value === undefined && name !== mainKey ? rest : { ...row, [name]: value ?? "" };
}
