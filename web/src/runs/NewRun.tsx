import { lazy } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { Page } from "@/ui/Page";
import { useSearchParams } from "@/ui/search";
import { Failed, Loading } from "@/ui/states";
import { useSchema, useTask } from "./asking";

// The form needs a reader of YAML, which nothing else does.
const TaskForm = lazy(() => import("./form/TaskForm"));

/** A task to be filled in and run: an empty one, or one that the server offers. */
export default function NewRun() {
  const { t } = useTranslation();
  const [search] = useSearchParams();
  const file = search.get("file");
  const schema = useSchema();
  const task = useTask(file);
  const error = schema.error ?? (file ? task.error : null);
  if (schema.data && (!file || task.data))
    return <TaskForm key={file ?? ""} schema={schema.data} file={task.data ?? null} />;
  return (
    <Page title={t("runs.form.title")} about={<Link href="/tasks">{t("runs.tasks.title")}</Link>}>
      {error ? (
        <Failed error={error} retry={() => void (schema.error ? schema : task).refetch()} />
      ) : (
        <Loading rows={8} />
      )}
    </Page>
  );
}
