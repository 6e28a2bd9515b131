import { FileWarning, Play, Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { address } from "@/api/client";
import type { Schema } from "@/api/types";
import { may, useMe } from "@/shell/me";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Coded } from "@/ui/Coded";
import { Page } from "@/ui/Page";
import { Loaded } from "@/ui/states";
import { useTasks } from "./asking";
import styles from "./runs.module.css";
import { Templates } from "./Templates";

/** Offers a directory of task files; the path is relative to the configuration file. */
const OFFER = "runs:\n  tasks: ./tasks\n";

/** The server's own task files, and the templates that ship with Paddock. */
export default function Tasks() {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const tasks = useTasks();
  const writes = may(useMe().data, "runs:write");
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
      <Loaded query={tasks} rows={2}>
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
      </Loaded>
      <Templates writes={writes} />
      {tasks.data?.items.length === 0 && (
        <details className={styles.offer}>
          <summary>{t("runs.tasks.offer")}</summary>
          <p>
            <Coded text={t("runs.tasks.offerHint")} />
          </p>
          <Code text={OFFER} label="paddock.yaml" fileName="paddock.yaml" />
        </details>
      )}
    </Page>
  );
}

function TaskCard({ task, writes }: { task: Schema<"TaskItem">; writes: boolean }) {
  const { t } = useTranslation();
  const name = task.name ?? task.file;
  return (
    <li className={styles.card}>
      <h3 className={styles.cardTitle}>{name}</h3>
      <p className={styles.file}>{task.file}</p>
      {task.error ? (
        <p className={styles.wrong}>
          <FileWarning size={16} aria-hidden /> {task.error}
        </p>
      ) : (
        <p className={styles.cardText}>{task.description || t("runs.tasks.undescribed")}</p>
      )}
      <div className={styles.cardFoot}>
        <Link href={address("/runs", { name: task.name })} className={styles.quietLink}>
          {t("runs.tasks.runs")}
        </Link>
        {writes && !task.error && (
          <Link
            href={address("/tasks/new", { file: task.file })}
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
