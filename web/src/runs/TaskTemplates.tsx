import { useMutation } from "@tanstack/react-query";
import { FilePen, Hammer, Play } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { buildUrl } from "@/api/client";
import type { Schema } from "@/api/types";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { showErrorToast } from "@/ui/controls/toasts";
import { QueryResult } from "@/ui/layout/query-states";
import { runTaskTemplate, useTaskTemplates } from "./api";
import styles from "./runs.module.css";

/** Sample tasks: each can be run with one click or opened in the form. */
export function TaskTemplates({ writes }: { writes: boolean }) {
  const { t } = useTranslation();
  const templates = useTaskTemplates();
  return (
    <section aria-labelledby="templates">
      <h2 id="templates" className={styles.sectionTitle}>
        {t("runs.templates.title")}
      </h2>
      <p className={styles.sectionAbout}>{t("runs.templates.about")}</p>
      <QueryResult query={templates} rows={4}>
        {({ items }) => (
          <ul className={styles.cards}>
            {sortRunnableFirst(items).map((template) => (
              <TemplateCard key={template.name} template={template} writes={writes} />
            ))}
          </ul>
        )}
      </QueryResult>
    </section>
  );
}

/** Templates that can run at once come first. */
function sortRunnableFirst(items: Schema<"TaskTemplateSummaryResponse">[]): Schema<"TaskTemplateSummaryResponse">[] {
  return [...items].sort(
    (one, other) => Number(other.imageBuilt) - Number(one.imageBuilt) || one.name.localeCompare(other.name),
  );
}

function TemplateCard({ template, writes }: { template: Schema<"TaskTemplateSummaryResponse">; writes: boolean }) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const run = useMutation({
    mutationFn: () => runTaskTemplate(template.name),
    onSuccess: ({ runs }) => runs[0] && go(`/runs/${runs[0].id}`),
    onError: showErrorToast,
  });
  const { name, agent, image, imageBuilt, scripted, needsKey } = template;
  return (
    <li className={styles.card}>
      <h3 className={styles.cardTitle}>{name}</h3>
      <p className={styles.badges}>
        {agent && agent !== "script" && <Badge>{agent}</Badge>}
        {scripted && (
          <Badge tone="info" title={t("runs.templates.scriptedHint")}>
            {t("runs.templates.scripted")}
          </Badge>
        )}
        <Badge tone={needsKey ? "warning" : "good"}>
          {needsKey ? t("runs.templates.needsKey") : t("runs.templates.noKey")}
        </Badge>
      </p>
      <p className={styles.cardText}>{t(`runs.template.${name}`, { defaultValue: template.description })}</p>
      {!imageBuilt && (
        <p className={styles.cardNote}>
          <Hammer size={14} aria-hidden />
          <span>
            <TextWithCode text={t("runs.templates.notBuilt", { image })} />
          </span>
        </p>
      )}
      {writes && (
        <div className={styles.cardFoot}>
          <Link
            href={buildUrl("/tasks/new", { template: name })}
            className={styles.useLink}
            aria-label={t("runs.templates.useNamed", { name })}
          >
            <FilePen size={15} aria-hidden /> {t("runs.templates.use")}
          </Link>
          <Button
            size="small"
            tone="accent"
            icon={Play}
            busy={run.isPending}
            onClick={() => run.mutate()}
            aria-label={t(imageBuilt ? "runs.tasks.runNamed" : "runs.templates.buildAndRunNamed", { name })}
          >
            {imageBuilt ? t("runs.tasks.run") : t("runs.templates.buildAndRun")}
          </Button>
        </div>
      )}
    </li>
  );
}
