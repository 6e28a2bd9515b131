import { Plus, X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Button, IconButton } from "@/ui/Button";
import { TextInput } from "@/ui/forms";
import { Switch } from "@/ui/Switch";
import { type Editing, useHint, useLabel } from "./Control";
import type { FieldSpec } from "./fields";
import styles from "./form.module.css";
import { problemAt } from "./problems";
import { listOf } from "./task-text";

type Row = Record<string, unknown>;

interface Props {
  spec: FieldSpec;
  editing: Editing;
  /** The key for which a value alone stands. */
  main: string;
  /** Another one that is text, shown after it. */
  also?: string;
}

/** A list whose entries are a text alone, or a mapping with that text and more: deliverables, checks. */
export function TextList({ spec, editing, main, also }: Props) {
  const { t } = useTranslation();
  const label = useLabel(spec);
  const hint = useHint(spec);
  const rows = listOf(editing.task[spec.path[0] ?? ""]).map(
    (each): Row => (typeof each === "object" && each !== null ? (each as Row) : { [main]: each }),
  );
  const save = (next: Row[]) =>
    editing.set(
      spec.path,
      next.map((row) => (Object.keys(row).length === 1 && main in row ? row[main] : row)),
    );
  const put = (index: number, name: string, value: unknown) =>
    save(rows.map((row, at) => (at === index ? changed(row, name, value, main) : row)));
  const word = (name: string, row: Row) => (typeof row[name] === "string" ? (row[name] as string) : "");
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

function changed(row: Row, name: string, value: unknown, main: string): Row {
  const { [name]: _, ...rest } = row;
  return value === undefined && name !== main ? rest : { ...row, [name]: value ?? "" };
}
