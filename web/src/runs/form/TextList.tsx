import { Plus, X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Button, IconButton } from "@/ui/controls/Button";
import { TextInput } from "@/ui/controls/forms";
import { Switch } from "@/ui/controls/Switch";
import { type TaskEditing, useFieldHint, useFieldLabel } from "./FieldControl";
import styles from "./form.module.css";
import type { FieldSpec } from "./schema-fields";
import { problemAt } from "./task-problems";
import { asList } from "./task-yaml";

type ListEntry = Record<string, unknown>;

interface Props {
  spec: FieldSpec;
  editing: TaskEditing;
  /** Key that a bare value stands for. */
  main: string;
  /** Second text key, shown after the main one. */
  also?: string;
}

/** List of texts, or of mappings with that text and more: deliverables, checks. */
export function TextList({ spec, editing, main, also }: Props) {
  const { t } = useTranslation();
  const label = useFieldLabel(spec);
  const hint = useFieldHint(spec);
  const rows = asList(editing.task[spec.path[0] ?? ""]).map(
    (each): ListEntry => (typeof each === "object" && each !== null ? (each as ListEntry) : { [main]: each }),
  );
  const save = (next: ListEntry[]) =>
    editing.set(
      spec.path,
      next.map((row) => (Object.keys(row).length === 1 && main in row ? row[main] : row)),
    );
  const put = (index: number, name: string, value: unknown) =>
    save(rows.map((row, at) => (at === index ? changeEntry(row, name, value, main) : row)));
  const word = (name: string, row: ListEntry) => (typeof row[name] === "string" ? (row[name] as string) : "");
  return (
    <fieldset className={styles.group}>
      <legend>{label}</legend>
      {hint && <p className={styles.hint}>{hint}</p>}
      {rows.map((row, index) => {
        const error = problemAt(editing.problems, [...spec.path, index]);
        return (
          <div key={index} className={styles.entry}>
            <div className={styles.row}>
              {also && (
                <TextInput
                  className={styles.also}
                  aria-label={`${label} ${index + 1}: ${t(`runs.field.${spec.path[0]}_${also}`)}`}
                  placeholder={t(`runs.field.${spec.path[0]}_${also}`)}
                  value={word(also, row)}
                  onChange={(event) => put(index, also, event.target.value || undefined)}
                />
              )}
              <TextInput
                className={styles.mono}
                aria-label={`${label} ${index + 1}: ${t(`runs.field.${spec.path[0]}_${main}`)}`}
                placeholder={t(`runs.field.${spec.path[0]}_${main}`)}
                aria-invalid={error ? true : undefined}
                spellCheck={false}
                value={word(main, row)}
                onChange={(event) => put(index, main, event.target.value)}
              />
              <Switch
                label={t("runs.form.required")}
                checked={row.required !== false}
                onChange={(on) => put(index, "required", on ? undefined : false)}
              />
              <IconButton
                icon={X}
                label={t("runs.form.remove", { name: word(main, row) || index + 1 })}
                onClick={() => save(rows.filter((_, at) => at !== index))}
              />
            </div>
            {error && <p className={styles.error}>{error}</p>}
          </div>
        );
      })}
      <div>
        <Button size="small" icon={Plus} onClick={() => save([...rows, { [main]: "" }])}>
          {t(`runs.form.add_${spec.path[0]}`)}
        </Button>
      </div>
    </fieldset>
  );
}

function changeEntry(row: ListEntry, name: string, value: unknown, main: string): ListEntry {
  const { [name]: _, ...rest } = row;
  return value === undefined && name !== main ? rest : { ...row, [name]: value ?? "" };
}
