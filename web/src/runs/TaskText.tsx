import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Code } from "@/ui/Code";
import { Failed, Loading } from "@/ui/states";
import type { WholeRun } from "./asking";
import styles from "./run.module.css";

/** The task of a run, as a file would have it. */
export function TaskText({ run }: { run: WholeRun }) {
  const { t } = useTranslation();
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    let here = true;
    // Writing YAML takes a library that only this needs.
    Promise.all([import("./form/task-text"), import("./form/friendly")]).then(
      ([{ write }, { friendly }]) => here && setText(write(friendly(run.task))),
      (problem: unknown) => here && setError(problem),
    );
    return () => {
      here = false;
    };
  }, [run.task]);
  if (error) return <Failed error={error} />;
  if (text === null) return <Loading />;
  return (
    <div className={styles.task}>
      <p className={styles.soft}>{t("runs.taskHint")}</p>
      <Code text={text} label="YAML" fileName={`${run.name.split("/")[0]}.yaml`} />
    </div>
  );
}
