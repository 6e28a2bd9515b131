import type { TFunction } from "i18next";
import { CircleCheck, LoaderCircle, Play, RotateCcw } from "lucide-react";
import { useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { useServerFacts } from "@/shell/status/server-facts";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { showErrorToast } from "@/ui/controls/toasts";
import { errorText } from "@/ui/format/error-text";
import { translateServerText } from "@/ui/format/server-text";
import { Page } from "@/ui/layout/Page";
import { type AnsweringModel, answeringModel } from "./answering-model";
import styles from "./form.module.css";
import { InputFiles } from "./InputFiles";
import { type Attachments, taskInputs, unattachedInputs } from "./input-bundle";
import { toReadableTask } from "./readable-task";
import { RunStarter } from "./run-starter";
import { type TaskEditing, TaskFieldControl } from "./TaskFieldControl";
import { SERVER_ISSUES, TaskIssues } from "./TaskIssues";
import { TaskNetworkField } from "./TaskNetworkField";
import { TextListField } from "./TextListField";
import { parseTaskProblems, type TaskProblem } from "./task-problems";
import { foldedFieldNames, MAIN_FIELDS, type SchemaNode, taskFieldsFromSchema } from "./task-schema-fields";
import { changeYamlValue, parseTaskYaml, type Task, taskToYaml, taskValueAt, yamlLineOfPath } from "./task-yaml";
import { useFieldChoices } from "./useFieldChoices";
import { useTaskValidation } from "./useTaskValidation";
import { YamlEditor } from "./YamlEditor";

const EMPTY = 'name: my-task\nagent: claude-code\ngoal: ""\ndeliverables:\n  - report.md\n';
/** Placeholder that the server writes for possible secrets. */
const MASKED_VALUE = "(hidden)";

interface Props {
  schema: SchemaNode;
  /** Task file to start from. */
  file: Schema<"TaskResponse"> | null;
  /** Sample task to start from. */
  template: Schema<"TaskTemplateResponse"> | null;
}

/** Task form with a YAML editor beside it; both stay in sync. */
export default function TaskForm({ schema, file, template }: Props) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const me = useCurrentUser();
  const server = useServerFacts();
  const origin = file ?? template;
  const first = useMemo(() => (origin ? taskToYaml(toReadableTask(origin.task)) : EMPTY), [origin]);
  const [text, setText] = useState(first);
  const [attachments, setAttachments] = useState<Attachments>({});
  const [busy, setBusy] = useState(false);
  const starter = useRef(new RunStarter());
  const fields = useMemo(() => taskFieldsFromSchema(schema), [schema]);
  const { task, faults } = useMemo(() => parseTaskYaml(text), [text]);
  const isUnchanged = file !== null && text === first && Object.keys(attachments).length === 0;
  const { verdict, error, isCurrent } = useTaskValidation(task);
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set());
  const [all, setAll] = useState(origin !== null);
  const form = useRef<HTMLFormElement>(null);
  const statusElement = useRef<HTMLDivElement>(null);
  const markTouched = (name: string) => setTouched((names) => (names.has(name) ? names : new Set([...names, name])));

  const allProblems = collectProblems({ t, task, fields, verdict, attachments, attaches: !isUnchanged });
  if (task && file && !isUnchanged && text.includes(MASKED_VALUE))
    allProblems.push({ path: [], message: t("runs.form.hidden") });
  // A new form shows no errors before anything was typed.
  const problems = allProblems.filter(({ path }) => all || path.length === 0 || touched.has(String(path[0])));
  const hiddenProblems = allProblems.length - problems.length;
  const issues = verdict?.issues.filter(({ code }) => SERVER_ISSUES.has(code)) ?? [];
  const marks = task
    ? problems.map(({ path, message }) => ({
        line: yamlLineOfPath(text, path),
        message: [path.join("."), message].filter(Boolean).join(": "),
      }))
    : faults;
  const editing: TaskEditing = {
    task: task ?? {},
    problems,
    choices: useFieldChoices(server.data, isCurrent ? defaultModel(task, verdict) : undefined),
    set: (path, value) => {
      markTouched(String(path[0]));
      setText((current) => changeYamlValue(current, path, value));
    },
  };
  const start = async (fullTask: Task) => {
    setBusy(true);
    try {
      go(await starter.current.start({ task: fullTask, attachments, file: isUnchanged ? file.file : null }));
    } catch (problem) {
      showErrorToast(problem);
      setBusy(false);
    }
  };
  const changeText = (next: string) => {
    setAll(true);
    setText(next);
  };
  const submit = () => {
    // A refused key may be valid by now; only a request to the provider can tell.
    const blocked = issues.some(({ code, level }) => level === "error" && code !== "PROVIDER_KEY_REFUSED");
    if (task && allProblems.length === 0 && verdict?.valid && !blocked) return void start(task);
    setAll(true);
    requestAnimationFrame(() => {
      const invalidField = form.current?.querySelector<HTMLElement>('[aria-invalid="true"]');
      if (invalidField) invalidField.focus();
      else statusElement.current?.scrollIntoView({ block: "center" });
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
            disabled={!isCurrent || task === null || !hasScope(me.data, "runs:write")}
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
            if (name) markTouched(name);
          }}
          inert={task === null}
          aria-label={t("runs.form.form")}
          onSubmit={(event) => event.preventDefault()}
        >
          <TaskFields
            fields={fields}
            editing={editing}
            attachments={attachments}
            onAttach={setAttachments}
            onServer={isUnchanged}
          />
        </form>
        <aside className={styles.yamlPane} aria-label={t("runs.form.yaml")}>
          <div ref={statusElement} className={styles.verdict} role="status">
            <TaskStatus
              isCurrent={isCurrent}
              failure={
                error
                  ? errorText(error)
                  : task === null
                    ? t("runs.form.unreadable")
                    : marks.length > 0
                      ? t("runs.form.problems", { count: marks.length })
                      : null
              }
              hiddenProblems={hiddenProblems}
              ready={verdict?.ready === true}
              answering={answeringModel(verdict)}
            />
            {isUnchanged && <span className={styles.hint}>{t("runs.form.asItIs", { file: file.file })}</span>}
          </div>
          <TaskIssues issues={issues} />
          <YamlEditor text={text} marks={marks} onChange={changeText} />
          <p className={styles.hint}>
            <TextWithCode text={t("runs.form.yamlHint")} />
          </p>
        </aside>
      </div>
    </Page>
  );
}

interface TaskStatusProps {
  isCurrent: boolean;
  failure: string | null;
  /** Problems that are not shown yet. */
  hiddenProblems: number;
  ready: boolean;
  answering: AnsweringModel | null;
}

/** Whether the task can be run, and which model answers, in a few words. */
function TaskStatus({ isCurrent, failure, hiddenProblems, ready, answering }: TaskStatusProps) {
  const { t } = useTranslation();
  if (!isCurrent)
    return (
      <Badge>
        <LoaderCircle size={13} aria-hidden /> {t("runs.form.checking")}
      </Badge>
    );
  if (failure) return <Badge tone="danger">{failure}</Badge>;
  if (hiddenProblems > 0) return <Badge>{t("runs.form.incomplete")}</Badge>;
  if (!ready) return <Badge tone="warning">{t("runs.form.notReady")}</Badge>;
  return (
    <>
      <Badge tone="good">
        <CircleCheck size={13} aria-hidden /> {t("runs.form.valid")}
      </Badge>
      {answering && (
        <span>
          {answering.scripted
            ? t("runs.issue.SCRIPT_ANSWERS")
            : t("runs.form.modelAnswers", { count: answering.models.length, names: answering.models.join(", ") })}
        </span>
      )}
    </>
  );
}

/** The default model of the task, if the server has reported it. */
function defaultModel(task: Task | null, verdict: Schema<"TaskValidationResponse"> | null): string | undefined {
  const chosen = task === null || taskValueAt(task, ["llm", "model"]) !== undefined;
  return !chosen && verdict?.models.length === 1 ? verdict.models[0] : undefined;
}

interface ProblemSources {
  t: TFunction;
  task: Task | null;
  fields: Record<string, unknown>;
  verdict: Schema<"TaskValidationResponse"> | null;
  attachments: Attachments;
  /** Whether files must be attached here; otherwise the server has them. */
  attaches: boolean;
}

/** Problems of a task, by field. */
function collectProblems({ t, task, fields, verdict, attachments, attaches }: ProblemSources): TaskProblem[] {
  if (task === null) return [];
  const found: TaskProblem[] = [];
  const lacksGoal = isBlankValue(task.goal);
  if (lacksGoal) found.push({ path: ["goal"], message: t("runs.form.needsGoal") });
  const faults = verdict?.issues.filter(({ code, level }) => level === "error" && !SERVER_ISSUES.has(code)) ?? [];
  if (faults.length > 0) {
    for (const { field, code, message, params } of faults)
      found.push({
        path: field ? field.split(".") : [],
        message: t(`runs.issue.${code}`, {
          ...params,
          message: translateServerText(message),
          defaultValue: translateServerText(message),
        }),
      });
  } else if (verdict?.error) {
    const reported = parseTaskProblems(verdict.error, [...Object.keys(fields), ...Object.keys(task)]);
    for (const { path, message } of reported)
      if (!lacksGoal || path[0] !== "goal") found.push({ path, message: translateServerText(message) });
  }
  if (attaches)
    for (const index of unattachedInputs(taskInputs(task), attachments))
      found.push({ path: ["inputs", index], message: t("runs.form.needsFile") });
  return found;
}

function isBlankValue(value: unknown): boolean {
  return value === undefined || value === null || (typeof value === "string" && !value.trim());
}

interface TaskFieldsProps {
  fields: ReturnType<typeof taskFieldsFromSchema>;
  editing: TaskEditing;
  attachments: Attachments;
  onAttach: (attachments: Attachments) => void;
  onServer: boolean;
}

function TaskFields({ fields, editing, attachments, onAttach, onServer }: TaskFieldsProps) {
  const { t } = useTranslation();
  const model = fields.llm?.parts.find((part) => part.path[1] === "model");
  const rest = fields.llm?.parts.filter((part) => part !== model) ?? [];
  const visibleFields = MAIN_FIELDS.filter((name) => name !== "name" && name !== "agent");
  return (
    <>
      {fields.name && (
        <div data-field="name">
          <TaskFieldControl spec={fields.name} editing={editing} />
        </div>
      )}
      <div className={styles.pair}>
        {fields.agent && (
          <div data-field="agent">
            <TaskFieldControl spec={fields.agent} editing={editing} />
          </div>
        )}
        {model && (
          <div data-field="llm">
            <TaskFieldControl spec={model} editing={editing} />
          </div>
        )}
      </div>
      {visibleFields.map((name) => {
        const spec = fields[name];
        if (!spec) return null;
        return (
          <div key={name} data-field={name}>
            {name === "inputs" ? (
              <InputFiles
                spec={spec}
                editing={editing}
                attachments={attachments}
                onAttach={onAttach}
                onServer={onServer}
              />
            ) : name === "network" ? (
              <TaskNetworkField editing={editing} />
            ) : name === "deliverables" ? (
              <TextListField spec={spec} editing={editing} mainKey="path" />
            ) : name === "verify" ? (
              <TextListField spec={spec} editing={editing} mainKey="run" secondaryKey="name" />
            ) : (
              <TaskFieldControl spec={spec} editing={editing} />
            )}
          </div>
        );
      })}
      <details className={styles.more}>
        <summary>{t("runs.form.more")}</summary>
        <div className={styles.moreParts}>
          {foldedFieldNames(fields).map((name) => {
            const spec = fields[name];
            return (
              spec && (
                <div key={name} data-field={name}>
                  <TaskFieldControl spec={name === "llm" ? { ...spec, parts: rest } : spec} editing={editing} />
                </div>
              )
            );
          })}
        </div>
      </details>
    </>
  );
}
