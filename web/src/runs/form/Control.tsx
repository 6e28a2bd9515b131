import { type ReactNode, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Coded } from "@/ui/Coded";
import { Field, Select, TextArea, TextInput } from "@/ui/forms";
import { Switch } from "@/ui/Switch";
import { Choose } from "./Choose";
import { type FieldSpec, fits, fromLines, fromPairs, toLines, toPairs } from "./fields";
import styles from "./form.module.css";
import { type Problem, problemAt } from "./problems";
import { type Path, read, type Task, valueAt, write } from "./task-text";
import type { Choices } from "./useChoices";

export interface Editing {
  task: Task;
  problems: Problem[];
  /** What a field is chosen from, by its path. */
  choices: Record<string, Choices>;
  set: (path: Path, value: unknown) => void;
}

const LONG = new Set(["goal", "entrypoint", "llm.script", "description"]);

/** One field of a task, as the schema has it. */
export function Control({ spec, editing }: { spec: FieldSpec; editing: Editing }) {
  const { t } = useTranslation();
  const value = valueAt(editing.task, spec.path);
  const name = spec.path.join(".");
  const error = problemAt(editing.problems, spec.path);
  const set = (next: unknown) => editing.set(spec.path, next);
  const label = useLabel(spec);
  const hint = useHint(spec);
  const about = { label: spec.required ? `${label} *` : label, hint, error };

  if (spec.control === "group" && (fits("group", value) || spec.path[0] === "llm" || spec.path[0] === "retries"))
    return (
      <fieldset className={styles.group}>
        <legend>{label}</legend>
        {hint && <p className={styles.hint}>{hint}</p>}
        <div className={styles.parts}>
          {spec.parts.map((part) => (
            <Control key={part.path.join(".")} spec={part} editing={editing} />
          ))}
        </div>
      </fieldset>
    );
  if (!fits(spec.control, value) || spec.control === "yaml" || spec.control === "group")
    return <Drafted about={about} value={value} set={set} toText={toYaml} fromText={fromYaml} />;
  if (spec.control === "lines")
    return <Drafted about={about} value={value} set={set} toText={toLines} fromText={fromLines} rows={2} />;
  if (spec.control === "pairs")
    return <Drafted about={about} value={value} set={set} toText={toPairs} fromText={fromPairs} example="NAME=value" />;
  if (spec.control === "number")
    return <Drafted about={about} value={value} set={set} toText={toLines} fromText={fromNumber} numeric />;
  if (spec.control === "switch")
    return (
      <div className={styles.switch}>
        <Switch
          label={label}
          checked={typeof value === "boolean" ? value : spec.otherwise === true}
          onChange={(on) => set(on === (spec.otherwise === true) ? undefined : on)}
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
  if (LONG.has(name))
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
        <Choose choices={choices} value={text} onChange={set} />
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

interface DraftedProps {
  about: { label: string; hint?: ReactNode; error?: string | null };
  value: unknown;
  set: (value: unknown) => void;
  toText: (value: unknown) => string;
  /** Null while the text makes no sense yet. */
  fromText: (text: string) => unknown;
  rows?: number;
  numeric?: boolean;
  example?: string;
}

/** A value that is typed as text. What is typed stays as it is, also while it is not yet a value. */
export function Drafted({ about, value, set, toText, fromText, rows = 3, numeric, example }: DraftedProps) {
  const { t } = useTranslation();
  const there = toText(value);
  const [draft, setDraft] = useState(there);
  const sent = useRef(there);
  useEffect(() => {
    // Changed from elsewhere: by the text beside the form.
    if (there !== sent.current) setDraft(there);
    sent.current = there;
  }, [there]);
  const unclear = draft.trim() !== "" && fromText(draft) === null;
  const change = (text: string) => {
    setDraft(text);
    const made = text.trim() === "" ? undefined : fromText(text);
    if (made === null) return;
    sent.current = toText(made);
    set(made);
  };
  const common = { value: draft, placeholder: example, spellCheck: false };
  return (
    <Field {...about} error={unclear ? t("runs.form.unclear") : about.error}>
      {numeric ? (
        <TextInput {...common} inputMode="decimal" onChange={(event) => change(event.target.value)} />
      ) : (
        <TextArea {...common} rows={rows} className={styles.mono} onChange={(event) => change(event.target.value)} />
      )}
    </Field>
  );
}

function fromNumber(text: string): number | null {
  const value = Number(text);
  return Number.isFinite(value) ? value : null;
}

function toYaml(value: unknown): string {
  return value === undefined ? "" : write(value as Task);
}

function fromYaml(text: string): unknown {
  const { task, faults } = read(`value:\n${text.replace(/^/gm, "  ")}`);
  return faults.length > 0 ? null : (task?.value ?? undefined);
}

export function useLabel(spec: FieldSpec): string {
  const { t } = useTranslation();
  return t(`runs.field.${spec.path.join("_")}`, { defaultValue: spec.path.at(-1) ?? "" });
}

/** What the schema says about it, unless the language of the page has words of its own. */
export function useHint(spec: FieldSpec): ReactNode {
  const { t } = useTranslation();
  const text = t(`runs.hint.${spec.path.join("_")}`, { defaultValue: spec.hint });
  return text ? <Coded text={text} /> : null;
}
