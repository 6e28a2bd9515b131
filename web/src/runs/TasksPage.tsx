import { FileWarning, Play, Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { buildUrl } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Button } from "@/ui/controls/Button";
import { translateServerText } from "@/ui/format/server-text";
import { Page } from "@/ui/layout/Page";
import { QueryResult } from "@/ui/layout/query-states";
import { useTasks } from "./api";
import { parseTaskFileProblems } from "./form/task-problems";
import styles from "./runs.module.css";
import { TaskTemplates } from "./TaskTemplates";

/** Configuration that offers a directory of task files, relative to the configuration file. */
const TASKS_CONFIG = "runs:\n  tasks: ./tasks\n";

/** Task files of the server, and the templates that ship with Paddock. */
export default function TasksPage() {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const tasks = useTasks();
  const writes = hasScope(useCurrentUser().data, "runs:write");
  return (
    <Page
      title={t("runs.tasks.title")}
      about={t("runs.tasks.about")}
      actions={
        <Button tone="accent" icon={Plus} onClick={() => go("/tasks/new")} disabled={!writes}>
          {t("runs.tasks.new")}
        </Button>
      }
    >
      <QueryResult query={tasks} rows={2}>
        {({ items }) =>
          items.length > 0 && (
            <section aria-labelledby="own-tasks">
              <h2 id="own-tasks" className={styles.sectionTitle}>
                {t("runs.tasks.own")}
              </h2>
              <ul className={styles.cards}>
                {items.map((task) => (
                  <TaskCard key={task.file} task={task} writes={writes} />
                ))}
              </ul>
            </section>
          )
        }
      </QueryResult>
      <TaskTemplates writes={writes} />
      {tasks.data?.items.length === 0 && (
        <details className={styles.offer}>
          <summary>{t("runs.tasks.offer")}</summary>
          <p>
            <TextWithCode text={t("runs.tasks.offerHint")} />
          </p>
          <CodeBlock text={TASKS_CONFIG} label="paddock.yaml" fileName="paddock.yaml" />
        </details>
      )}
    </Page>
  );
}

function TaskCard({ task, writes }: { task: Schema<"TaskFileResponse">; writes: boolean }) {
  const { t } = useTranslation();
  const name = task.name ?? task.file;
  return (
    <li className={styles.card}>
      <h3 className={styles.cardTitle}>{name}</h3>
      <p className={styles.file}>{task.file}</p>
      {task.error ? (
        <ul className={styles.wrong}>
          {parseTaskFileProblems(task.error).map(({ file, line, field, message }, index) => (
            <li key={index}>
              <FileWarning size={16} aria-hidden />{" "}
              {[
                file === task.file ? "" : file,
                line === null ? "" : t("runs.form.line", { line }),
                field,
                translateServerText(message),
              ]
                .filter(Boolean)
                .join(": ")}
            </li>
          ))}
        </ul>
      ) : (
        <p className={styles.cardText}>{task.description || t("runs.tasks.undescribed")}</p>
      )}
      <div className={styles.cardFoot}>
        <Link href={buildUrl("/runs", { name: task.name })} className={styles.quietLink}>
          {t("runs.tasks.runs")}
        </Link>
        {writes && !task.error && (
          <Link
            href={buildUrl("/tasks/new", { file: task.file })}
            className={styles.runLink}
            aria-label={t("runs.tasks.runNamed", { name })}
          >
            <Play size={15} aria-hidden /> {t("runs.tasks.run")}
          </Link>
        )}
      </div>
    </li>
  );
}
