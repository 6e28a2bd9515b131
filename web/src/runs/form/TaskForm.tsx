import type { TFunction } from "i18next";
import { CircleCheck, LoaderCircle, Play, RotateCcw } from "lucide-react";
import { useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import type { Schema } from "@/api/types";
import { may, useMe } from "@/shell/me";
import { useServer } from "@/shell/server";
import { Badge } from "@/ui/Badge";
import { Button } from "@/ui/Button";
import { Coded } from "@/ui/Coded";
import { describe } from "@/ui/describe";
import { Page } from "@/ui/Page";
import { toastError } from "@/ui/toasts";
import { type Attachments, inputsOf, unattached } from "./bundle";
import { Control, type Editing } from "./Control";
import { FIRST, fieldsOf, moreOf, type SchemaNode } from "./fields";
import styles from "./form.module.css";
import { friendly } from "./friendly";
import { Inputs } from "./Inputs";
import { BEFORE_START, Issues } from "./Issues";
import { TextList } from "./Lists";
import { type Problem, problemsOf } from "./problems";
import { Starter } from "./starting";
import { change, lineOf, read, type Task, valueAt, write } from "./task-text";
import { useChoices } from "./useChoices";
import { useVerdict } from "./useVerdict";
import { YamlEditor } from "./YamlEditor";

const EMPTY = 'name: my-task\nagent: claude-code\ngoal: ""\ndeliverables:\n  - report.md\n';
/** What the server writes in the place of values that may be secrets. */
const HIDDEN = "(hidden)";

interface Props {
  schema: SchemaNode;
  /** A task file to begin from. */
  file: Schema<"TaskSaid"> | null;
  /** A sample task to begin from. */
  template: Schema<"TemplateSaid"> | null;
}

/** A task as a form and as text beside it; either can be edited, and the other follows. */
export default function TaskForm({ schema, file, template }: Props) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const me = useMe();
  const server = useServer();
  const origin = file ?? template;
  const first = useMemo(() => (origin ? write(friendly(origin.task)) : EMPTY), [origin]);
  const [text, setText] = useState(first);
  const [attachments, setAttachments] = useState<Attachments>({});
  const [busy, setBusy] = useState(false);
  const starter = useRef(new Starter());
  const fields = useMemo(() => fieldsOf(schema), [schema]);
  const { task, faults } = useMemo(() => read(text), [text]);
  const untouched = file !== null && text === first && Object.keys(attachments).length === 0;
  const { verdict, error, settled } = useVerdict(task);
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set());
  const [all, setAll] = useState(origin !== null);
  const form = useRef<HTMLFormElement>(null);
  const standing = useRef<HTMLDivElement>(null);
  const touch = (name: string) => setTouched((now) => (now.has(name) ? now : new Set([...now, name])));

  const every = problemsIn({ t, task, fields, verdict, attachments, attaches: !untouched });
  if (task && file && !untouched && text.includes(HIDDEN)) every.push({ path: [], message: t("runs.form.hidden") });
  // A new form is not red before anything was typed.
  const problems = every.filter(({ path }) => all || path.length === 0 || touched.has(String(path[0])));
  const waiting = every.length - problems.length;
  const issues = verdict?.issues.filter(({ code }) => BEFORE_START.has(code)) ?? [];
  const marks = task
    ? problems.map(({ path, message }) => ({
        line: lineOf(text, path),
        message: [path.join("."), message].filter(Boolean).join(": "),
      }))
    : faults;
  const editing: Editing = {
    task: task ?? {},
    problems,
    choices: useChoices(server.data, settled ? defaultModel(task, verdict) : undefined),
    set: (path, value) => {
      touch(String(path[0]));
      setText((now) => change(now, path, value));
    },
  };
  const start = async (whole: Task) => {
    setBusy(true);
    try {
      go(await starter.current.start({ task: whole, attachments, file: untouched ? file.file : null }));
    } catch (problem) {
      toastError(problem);
      setBusy(false);
    }
  };
  const changeText = (next: string) => {
    setAll(true);
    setText(next);
  };
  const submit = () => {
    // A refused key may be good by now; only a request to the provider tells.
    const blocked = issues.some(({ code, level }) => level === "error" && code !== "PROVIDER_KEY_REFUSED");
    if (task && every.length === 0 && verdict?.valid && !blocked) return void start(task);
    setAll(true);
    requestAnimationFrame(() => {
      const wrong = form.current?.querySelector<HTMLElement>('[aria-invalid="true"]');
      if (wrong) wrong.focus();
      else standing.current?.scrollIntoView({ block: "center" });
    });
  };
  const runs = verdict?.runs.length ?? 0;
  return (
    <Page
      title={file ? t("runs.form.titleOf", { name: file.name }) : t("runs.form.title")}
      about={<Link href="/tasks">{t("runs.form.back")}</Link>}
      actions={
        <>
          {text !== first && (
            <Button
              icon={RotateCcw}
              onClick={() => {
                setText(first);
                setAttachments({});
                setTouched(new Set());
                setAll(origin !== null);
              }}
            >
              {t("runs.form.reset")}
            </Button>
          )}
          <Button
            tone="accent"
            icon={Play}
            busy={busy}
            disabled={!settled || task === null || !may(me.data, "runs:write")}
            onClick={submit}
          >
            {runs > 1 ? t("runs.form.startMany", { count: runs }) : t("runs.form.start")}
          </Button>
        </>
      }
    >
      <div className={styles.columns}>
        <form
          ref={form}
          className={styles.form}
          onBlur={({ target }) => {
            const name = target.closest<HTMLElement>("[data-field]")?.dataset.field;
            if (name) touch(name);
          }}
          inert={task === null}
          aria-label={t("runs.form.form")}
          onSubmit={(event) => event.preventDefault()}
        >
          <Fields
            fields={fields}
            editing={editing}
            attachments={attachments}
            onAttach={setAttachments}
            onServer={untouched}
          />
        </form>
        <aside className={styles.beside} aria-label={t("runs.form.yaml")}>
          <div ref={standing} className={styles.verdict} role="status">
            <Standing
              settled={settled}
              trouble={
                error
                  ? describe(error)
                  : task === null
                    ? t("runs.form.unreadable")
                    : marks.length > 0
                      ? t("runs.form.problems", { count: marks.length })
                      : null
              }
              waiting={waiting}
              ready={verdict?.ready === true}
            />
            {untouched && <span className={styles.hint}>{t("runs.form.asItIs", { file: file.file })}</span>}
          </div>
          <Issues issues={issues} />
          <YamlEditor text={text} marks={marks} onChange={changeText} />
          <p className={styles.hint}>
            <Coded text={t("runs.form.yamlHint")} />
          </p>
        </aside>
      </div>
    </Page>
  );
}

interface StandingProps {
  settled: boolean;
  trouble: string | null;
  /** Problems that are not shown yet. */
  waiting: number;
  ready: boolean;
}

/** Whether the task can be run, in a few words. */
function Standing({ settled, trouble, waiting, ready }: StandingProps) {
  const { t } = useTranslation();
  if (!settled)
    return (
      <Badge>
        <LoaderCircle size={13} aria-hidden /> {t("runs.form.checking")}
      </Badge>
    );
  if (trouble) return <Badge tone="danger">{trouble}</Badge>;
  if (waiting > 0) return <Badge>{t("runs.form.incomplete")}</Badge>;
  if (!ready) return <Badge tone="warning">{t("runs.form.notReady")}</Badge>;
  return (
    <Badge tone="good">
      <CircleCheck size={13} aria-hidden /> {t("runs.form.valid")}
    </Badge>
  );
}

/** The model that the task would use with none chosen, as far as the server has said. */
function defaultModel(task: Task | null, verdict: Schema<"Verdict"> | null): string | undefined {
  const chosen = task === null || valueAt(task, ["llm", "model"]) !== undefined;
  return !chosen && verdict?.models.length === 1 ? verdict.models[0] : undefined;
}

interface Checked {
  t: TFunction;
  task: Task | null;
  fields: Record<string, unknown>;
  verdict: Schema<"Verdict"> | null;
  attachments: Attachments;
  /** Whether files have to be attached here; otherwise the server has them. */
  attaches: boolean;
}

/** What is wrong with a task, field by field. */
function problemsIn({ t, task, fields, verdict, attachments, attaches }: Checked): Problem[] {
  if (task === null) return [];
  const found: Problem[] = [];
  const aimless = isBlank(task.goal);
  if (aimless) found.push({ path: ["goal"], message: t("runs.form.needsGoal") });
  const faults = verdict?.issues.filter(({ code, level }) => level === "error" && !BEFORE_START.has(code)) ?? [];
  if (faults.length > 0) {
    for (const { field, code, message, params } of faults)
      found.push({
        path: field ? field.split(".") : [],
        message: t(`runs.issue.${code}`, { ...params, defaultValue: message }),
      });
  } else if (verdict?.error) {
    const told = problemsOf(verdict.error, [...Object.keys(fields), ...Object.keys(task)]);
    found.push(...told.filter(({ path }) => !aimless || path[0] !== "goal"));
  }
  if (attaches)
    for (const index of unattached(inputsOf(task), attachments))
      found.push({ path: ["inputs", index], message: t("runs.form.needsFile") });
  return found;
}

function isBlank(value: unknown): boolean {
  return value === undefined || value === null || (typeof value === "string" && !value.trim());
}

interface FieldsProps {
  fields: ReturnType<typeof fieldsOf>;
  editing: Editing;
  attachments: Attachments;
  onAttach: (attachments: Attachments) => void;
  onServer: boolean;
}

function Fields({ fields, editing, attachments, onAttach, onServer }: FieldsProps) {
  const { t } = useTranslation();
  const model = fields.llm?.parts.find((part) => part.path[1] === "model");
  const rest = fields.llm?.parts.filter((part) => part !== model) ?? [];
  const shown = FIRST.filter((name) => name !== "name" && name !== "agent");
  return (
    <>
      {fields.name && (
        <div data-field="name">
          <Control spec={fields.name} editing={editing} />
        </div>
      )}
      <div className={styles.pair}>
        {fields.agent && (
          <div data-field="agent">
            <Control spec={fields.agent} editing={editing} />
          </div>
        )}
        {model && (
          <div data-field="llm">
            <Control spec={model} editing={editing} />
          </div>
        )}
      </div>
      {shown.map((name) => {
        const spec = fields[name];
        if (!spec) return null;
        return (
          <div key={name} data-field={name}>
            {name === "inputs" ? (
              <Inputs spec={spec} editing={editing} attachments={attachments} onAttach={onAttach} onServer={onServer} />
            ) : name === "deliverables" ? (
              <TextList spec={spec} editing={editing} main="path" />
            ) : name === "verify" ? (
              <TextList spec={spec} editing={editing} main="run" also="name" />
            ) : (
              <Control spec={spec} editing={editing} />
            )}
          </div>
        );
      })}
      <details className={styles.more}>
        <summary>{t("runs.form.more")}</summary>
        <div className={styles.moreParts}>
          {moreOf(fields).map((name) => {
            const spec = fields[name];
            return (
              spec && (
                <div key={name} data-field={name}>
                  <Control spec={name === "llm" ? { ...spec, parts: rest } : spec} editing={editing} />
                </div>
              )
            );
          })}
        </div>
      </details>
    </>
  );
}
