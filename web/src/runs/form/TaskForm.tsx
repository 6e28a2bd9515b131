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
import { Page } from "@/ui/Page";
import { toastError } from "@/ui/toasts";
import { type Attachments, inputsOf, unattached } from "./bundle";
import { Control, type Editing } from "./Control";
import { FIRST, fieldsOf, moreOf, type SchemaNode } from "./fields";
import styles from "./form.module.css";
import { friendly } from "./friendly";
import { Inputs } from "./Inputs";
import { TextList } from "./Lists";
import { type Problem, problemsOf } from "./problems";
import { Starter } from "./starting";
import { change, lineOf, read, type Task, write } from "./task-text";
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

  const problems: Problem[] = [];
  const aimless = task !== null && isBlank(task.goal);
  if (aimless) problems.push({ path: ["goal"], message: t("runs.form.needsGoal") });
  if (task && verdict?.error) {
    const found = problemsOf(verdict.error, [...Object.keys(fields), ...Object.keys(task)]);
    problems.push(...found.filter(({ path }) => !aimless || path[0] !== "goal"));
  }
  if (task && !untouched) {
    for (const index of unattached(inputsOf(task), attachments))
      problems.push({ path: ["inputs", index], message: t("runs.form.needsFile") });
    if (file && text.includes(HIDDEN)) problems.push({ path: [], message: t("runs.form.hidden") });
  }
  const marks = task
    ? problems.map(({ path, message }) => ({
        line: lineOf(text, path),
        message: [path.join("."), message].filter(Boolean).join(": "),
      }))
    : faults;
  const editing: Editing = {
    task: task ?? {},
    problems,
    choices: {
      agent: server.data?.agents.tasks.map((each) => each.name) ?? [],
      model: server.data?.models.items.map((each) => each.name).filter((name) => !name.includes("*")) ?? [],
      kind: server.data?.kinds.map((each) => each.name) ?? [],
    },
    set: (path, value) => setText((now) => change(now, path, value)),
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
  const mayStart = task !== null && problems.length === 0 && verdict?.valid === true && settled;
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
              }}
            >
              {t("runs.form.reset")}
            </Button>
          )}
          <Button
            tone="accent"
            icon={Play}
            busy={busy}
            disabled={!mayStart || !may(me.data, "runs:write")}
            onClick={() => task && void start(task)}
          >
            {runs > 1 ? t("runs.form.startMany", { count: runs }) : t("runs.form.start")}
          </Button>
        </>
      }
    >
      <div className={styles.columns}>
        <form
          className={styles.form}
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
          <div className={styles.verdict} role="status">
            {!settled ? (
              <Badge>
                <LoaderCircle size={13} aria-hidden /> {t("runs.form.checking")}
              </Badge>
            ) : marks.length > 0 || error ? (
              <Badge tone="danger">
                {error
                  ? error.message
                  : task
                    ? t("runs.form.problems", { count: marks.length })
                    : t("runs.form.unreadable")}
              </Badge>
            ) : (
              <Badge tone="good">
                <CircleCheck size={13} aria-hidden /> {t("runs.form.valid")}
              </Badge>
            )}
            {untouched && <span className={styles.hint}>{t("runs.form.asItIs", { file: file.file })}</span>}
          </div>
          <YamlEditor text={text} marks={marks} onChange={setText} />
          <p className={styles.hint}>
            <Coded text={t("runs.form.yamlHint")} />
          </p>
        </aside>
      </div>
    </Page>
  );
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
      {fields.name && <Control spec={fields.name} editing={editing} />}
      <div className={styles.pair}>
        {fields.agent && <Control spec={fields.agent} editing={editing} />}
        {model && <Control spec={model} editing={editing} />}
      </div>
      {shown.map((name) => {
        const spec = fields[name];
        if (!spec) return null;
        if (name === "inputs")
          return (
            <Inputs
              key={name}
              spec={spec}
              editing={editing}
              attachments={attachments}
              onAttach={onAttach}
              onServer={onServer}
            />
          );
        if (name === "deliverables") return <TextList key={name} spec={spec} editing={editing} main="path" />;
        if (name === "verify") return <TextList key={name} spec={spec} editing={editing} main="run" also="name" />;
        return <Control key={name} spec={spec} editing={editing} />;
      })}
      <details className={styles.more}>
        <summary>{t("runs.form.more")}</summary>
        <div className={styles.moreParts}>
          {moreOf(fields).map((name) => {
            const spec = fields[name];
            return (
              spec && <Control key={name} spec={name === "llm" ? { ...spec, parts: rest } : spec} editing={editing} />
            );
          })}
        </div>
      </details>
    </>
  );
}
