import { type ReactNode, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Field, Select, TextArea, TextInput } from "@/ui/controls/forms";
import { Switch } from "@/ui/controls/Switch";
import styles from "./form.module.css";
import { NameChooser } from "./NameChooser";
import { problemAtPath, type TaskProblem } from "./task-problems";
import {
  controlFitsValue,
  formatLines,
  formatPairs,
  parseLines,
  parsePairs,
  type TaskFieldSpec,
} from "./task-schema-fields";
import { parseTaskYaml, type Task, taskToYaml, taskValueAt, type ValuePath } from "./task-yaml";
import type { FieldChoices } from "./useFieldChoices";

export interface TaskEditing {
  task: Task;
  problems: TaskProblem[];
  /** Choices of a field, by path. */
  choices: Record<string, FieldChoices>;
  set: (path: ValuePath, value: unknown) => void;
}

const LONG_TEXT_FIELDS = new Set(["goal", "entrypoint", "llm.script", "description"]);

/** One field of a task, rendered from the schema. */
export function TaskFieldControl({ spec, editing }: { spec: TaskFieldSpec; editing: TaskEditing }) {
  const { t } = useTranslation();
  const value = taskValueAt(editing.task, spec.path);
  const name = spec.path.join(".");
  const error = problemAtPath(editing.problems, spec.path);
  const set = (next: unknown) => editing.set(spec.path, next);
  const label = useFieldLabel(spec);
  const hint = useFieldHint(spec);
  const about = { label: spec.required ? `${label} *` : label, hint, error };

  if (
    spec.control === "group" &&
    (controlFitsValue("group", value) || spec.path[0] === "llm" || spec.path[0] === "retries")
  )
    return (
      <fieldset className={styles.group}>
        <legend>{label}</legend>
        {hint && <p className={styles.hint}>{hint}</p>}
        <div className={styles.parts}>
          {spec.parts.map((part) => (
            <TaskFieldControl key={part.path.join(".")} spec={part} editing={editing} />
          ))}
        </div>
      </fieldset>
    );
  if (!controlFitsValue(spec.control, value) || spec.control === "yaml" || spec.control === "group")
    return <ParsedTextInput about={about} value={value} set={set} toText={valueToYaml} fromText={valueFromYaml} />;
  if (spec.control === "lines")
    return (
      <ParsedTextInput about={about} value={value} set={set} toText={formatLines} fromText={parseLines} rows={2} />
    );
  if (spec.control === "pairs")
    return (
      <ParsedTextInput
        about={about}
        value={value}
        set={set}
        toText={formatPairs}
        fromText={parsePairs}
        example="NAME=value"
      />
    );
  if (spec.control === "number")
    return (
      <ParsedTextInput about={about} value={value} set={set} toText={formatLines} fromText={parseNumber} numeric />
    );
  if (spec.control === "switch")
    return (
      <div className={styles.switch}>
        <Switch
          label={label}
          checked={typeof value === "boolean" ? value : spec.defaultValue === true}
          onChange={(on) => set(on === (spec.defaultValue === true) ? undefined : on)}
        />
        <p className={error ? styles.error : styles.hint}>{error ?? hint}</p>
      </div>
    );
  if (spec.control === "choice")
    return (
      <Field {...about}>
        <Select
          value={String(value ?? "")}
          onChange={(chosen) => set(chosen || undefined)}
          options={[
            { value: "", label: t("runs.form.unset") },
            ...spec.options.map((each) => ({ value: each, label: each })),
          ]}
        />
      </Field>
    );
  const text = value === undefined || value === null ? "" : String(value);
  if (LONG_TEXT_FIELDS.has(name))
    return (
      <Field {...about}>
        <TextArea
          value={text}
          rows={name === "goal" ? 6 : 3}
          className={name === "goal" || name === "description" ? undefined : styles.mono}
          placeholder={name === "goal" ? t("runs.form.goalExample") : spec.example}
          onChange={(event) => set(event.target.value || undefined)}
        />
      </Field>
    );
  const choices = editing.choices[name];
  return (
    <Field {...about}>
      {choices && choices.options.length > 0 ? (
        <NameChooser choices={choices} value={text} onChange={set} />
      ) : (
        <TextInput
          value={text}
          placeholder={spec.example}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => set(event.target.value || undefined)}
        />
      )}
    </Field>
  );
}

interface DraftedInputProps {
  about: { label: string; hint?: ReactNode; error?: string | null };
  value: unknown;
  set: (value: unknown) => void;
  toText: (value: unknown) => string;
  /** Null while the text cannot be parsed. */
  fromText: (text: string) => unknown;
  rows?: number;
  numeric?: boolean;
  example?: string;
}

/** A value edited as text; the text is kept even while it does not parse. */
export function ParsedTextInput({
  about,
  value,
  set,
  toText,
  fromText,
  rows = 3,
  numeric,
  example,
}: DraftedInputProps) {
  const { t } = useTranslation();
  const valueText = toText(value);
  const [draft, setDraft] = useState(valueText);
  const sentText = useRef(valueText);
  useEffect(() => {
    // The value was changed by the YAML editor.
    if (valueText !== sentText.current) setDraft(valueText);
    sentText.current = valueText;
  }, [valueText]);
  const isInvalid = draft.trim() !== "" && fromText(draft) === null;
  const change = (text: string) => {
    setDraft(text);
    const parsed = text.trim() === "" ? undefined : fromText(text);
    if (parsed === null) return;
    sentText.current = toText(parsed);
    set(parsed);
  };
  const inputProps = { value: draft, placeholder: example, spellCheck: false };
  return (
    <Field {...about} error={isInvalid ? t("runs.form.unclear") : about.error}>
      {numeric ? (
        <TextInput {...inputProps} inputMode="decimal" onChange={(event) => change(event.target.value)} />
      ) : (
        <TextArea
          {...inputProps}
          rows={rows}
          className={styles.mono}
          onChange={(event) => change(event.target.value)}
        />
      )}
    </Field>
  );
}

function parseNumber(text: string): number | null {
  const value = Number(text);
  return Number.isFinite(value) ? value : null;
}

function valueToYaml(value: unknown): string {
  return value === undefined ? "" : taskToYaml(value as Task);
}

function valueFromYaml(text: string): unknown {
  const { task, faults } = parseTaskYaml(`value:\n${text.replace(/^/gm, "  ")}`);
  return faults.length > 0 ? null : (task?.value ?? undefined);
}

export function useFieldLabel(spec: TaskFieldSpec): string {
  const { t } = useTranslation();
  return t(`runs.field.${spec.path.join("_")}`, { defaultValue: spec.path.at(-1) ?? "" });
}

/** Hint of a field: the console's own text, else the schema's description. */
export function useFieldHint(spec: TaskFieldSpec): ReactNode {
  const { t } = useTranslation();
  const text = t(`runs.hint.${spec.path.join("_")}`, { defaultValue: spec.hint });
  return text ? <TextWithCode text={text} /> : null;
}
