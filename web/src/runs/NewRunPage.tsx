import { lazy } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { Page } from "@/ui/layout/Page";
import { ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { useTask, useTaskSchema, useTaskTemplate } from "./api";

// Lazy: only the form needs the YAML parser.
const TaskForm = lazy(() => import("./form/TaskForm"));

/** The task form: empty, or from a task file or a template. */
export default function NewRunPage() {
  const { t } = useTranslation();
  const [search] = useSearchParams();
  const file = search.get("file");
  const name = file ? null : search.get("template");
  const schema = useTaskSchema();
  const task = useTask(file);
  const template = useTaskTemplate(name);
  const sourceQuery = file ? task : name ? template : null;
  const error = schema.error ?? sourceQuery?.error;
  if (schema.data && (!sourceQuery || sourceQuery.data))
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
        <ErrorState error={error} retry={() => void (schema.error ? schema : (sourceQuery ?? schema)).refetch()} />
      ) : (
        <LoadingBars rows={8} />
      )}
    </Page>
  );
}
