import { lazy } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { Page } from "@/ui/Page";
import { useSearchParams } from "@/ui/search";
import { Failed, Loading } from "@/ui/states";
import { useSchema, useTask, useTemplate } from "./asking";

// The form needs a reader of YAML, which nothing else does.
const TaskForm = lazy(() => import("./form/TaskForm"));

/** A task in the form: an empty one, a task file of the server, or a template. */
export default function NewRun() {
  const { t } = useTranslation();
  const [search] = useSearchParams();
  const file = search.get("file");
  const name = file ? null : search.get("template");
  const schema = useSchema();
  const task = useTask(file);
  const template = useTemplate(name);
  const wanted = file ? task : name ? template : null;
  const error = schema.error ?? wanted?.error;
  if (schema.data && (!wanted || wanted.data))
    return (
      <TaskForm
        key={file ?? name ?? ""}
        schema={schema.data}
        file={task.data ?? null}
        template={template.data ?? null}
      />
    );
  return (
    <Page title={t("runs.form.title")} about={<Link href="/tasks">{t("runs.tasks.title")}</Link>}>
      {error ? (
        <Failed error={error} retry={() => void (schema.error ? schema : (wanted ?? schema)).refetch()} />
      ) : (
        <Loading rows={8} />
      )}
    </Page>
  );
}
