import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { ErrorState, LoadingBars } from "@/ui/layout/query-states";
import type { RunDetail } from "./api";
import styles from "./run.module.css";

/** The run's task as YAML. */
export function TaskYaml({ run }: { run: RunDetail }) {
  const { t } = useTranslation();
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    let mounted = true;
    // Lazy: only this needs the YAML library.
    Promise.all([import("./form/task-yaml"), import("./form/readable-task")]).then(
      ([{ taskToYaml: write }, { toReadableTask: toReadable }]) => mounted && setText(write(toReadable(run.task))),
      (problem: unknown) => mounted && setError(problem),
    );
    return () => {
      mounted = false;
    };
  }, [run.task]);
  if (error) return <ErrorState error={error} />;
  if (text === null) return <LoadingBars />;
  return (
    <div className={styles.task}>
      <p className={styles.soft}>{t("runs.taskHint")}</p>
      <CodeBlock text={text} label="YAML" fileName={`${run.name.split("/")[0]}.yaml`} />
    </div>
  );
}
