import { FileWarning, ListChecks, Play, Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { address } from "@/api/client";
import type { Schema } from "@/api/types";
import { may, useMe } from "@/shell/me";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { Coded } from "@/ui/Coded";
import { Page } from "@/ui/Page";
import { Empty, Loaded } from "@/ui/states";
import { useTasks } from "./asking";
import styles from "./runs.module.css";

/** What offers a directory: its path is relative to the file that says so. */
const OFFER = "runs:\n  tasks: ./tasks\n";

/** Task files that the server offers. */
export default function Tasks() {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const tasks = useTasks();
  const me = useMe();
  const fresh = (
    <Button tone="accent" icon={Plus} onClick={() => go("/tasks/new")} disabled={!may(me.data, "runs:write")}>
      {t("runs.tasks.new")}
    </Button>
  );
  return (
    <Page title={t("runs.tasks.title")} about={t("runs.tasks.about")} actions={fresh}>
      <Loaded
        query={tasks}
        isEmpty={({ items }) => items.length === 0}
        empty={
          <Empty
            icon={ListChecks}
            title={t("runs.tasks.empty")}
            action={
              <>
                <div className={styles.offer}>
                  <Code text={OFFER} label="paddock.yaml" fileName="paddock.yaml" />
                </div>
                {fresh}
              </>
            }
          >
            <Coded text={t("runs.tasks.emptyHint")} />
          </Empty>
        }
      >
        {({ items }) => (
          <ul className={styles.cards}>
            {items.map((task) => (
              <TaskCard key={task.file} task={task} />
            ))}
          </ul>
        )}
      </Loaded>
    </Page>
  );
}

function TaskCard({ task }: { task: Schema<"TaskItem"> }) {
  const { t } = useTranslation();
  const name = task.name ?? task.file;
  return (
    <li className={styles.card}>
      <h2 className={styles.cardTitle}>{name}</h2>
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
        {!task.error && (
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
