import { Ban, Download, Ellipsis, MonitorPlay, OctagonX, RotateCcw, ScrollText, Trash2 } from "lucide-react";
import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation, useParams } from "wouter";
import { buildUrl, downloadFile, PROVIDER_KEY_REFUSED } from "@/api/client";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { Button, IconButton } from "@/ui/controls/Button";
import { Menu } from "@/ui/controls/Menu";
import { SharedBadge, useSharingMenuItems } from "@/ui/controls/Sharing";
import { type Tab, Tabs } from "@/ui/controls/Tabs";
import { showErrorToast } from "@/ui/controls/toasts";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { Page } from "@/ui/layout/Page";
import { QueryResult, ServerDetails } from "@/ui/layout/query-states";
import { AgentActivity } from "./AgentActivity";
import { useRunActions } from "./actions";
import { isRunOver, type RunDetail, useRun } from "./api";
import { CheckResults } from "./CheckResults";
import { Deliverables } from "./Deliverables";
import { RunLogs } from "./RunLogs";
import { RunMetrics } from "./RunMetrics";
import { RunSandbox, useRunSandbox } from "./RunSandbox";
import { RunStages } from "./RunStages";
import { RunStateBadge } from "./RunStateBadge";
import styles from "./run.module.css";
import type { BuildProgress } from "./run-feed";
import { useRunExplanation } from "./run-reason";
import { TaskYaml } from "./TaskYaml";
import { useRunFeed } from "./useRunFeed";

/** One run: state, activity and results. */
export default function RunPage() {
  const { t } = useTranslation();
  const { id = "" } = useParams<{ id: string }>();
  const run = useRun(id);
  if (run.data) return <RunDetails key={id} run={run.data} refetch={() => void run.refetch()} />;
  return (
    <Page title={t("runs.one")} about={<Link href="/runs">{t("runs.title")}</Link>}>
      <QueryResult query={run} rows={8}>
        {() => null}
      </QueryResult>
    </Page>
  );
}

type TabId = "activity" | "output" | "sandbox" | "deliverables" | "checks" | "task";

function RunDetails({ run, refetch }: { run: RunDetail; refetch: () => void }) {
  const { t } = useTranslation();
  const [search, setSearch] = useSearchParams();
  const runFeed = useRunFeed(run.id);
  const over = isRunOver(run.state);
  const sandbox = useRunSandbox(runFeed.feed.sandbox ?? run.sandboxId ?? null, over);
  const explanation = useRunExplanation(run, runFeed.feed.stages.at(-1)?.stage ?? run.stage);
  const { ended } = runFeed.feed;
  // The last event says that the run ended; fetch its result at once.
  useEffect(() => {
    if (ended && !over) refetch();
  }, [ended, over, refetch]);

  const result = run.result;
  const passedChecks = result?.checks.filter((check) => check.passed).length ?? 0;
  const count = (value: number | string) => <span className={styles.count}>{value}</span>;
  const tabs: Tab<TabId>[] = [
    { id: "activity", label: t("runs.tab.activity") },
    { id: "output", label: t("runs.tab.output") },
    ...(sandbox ? [{ id: "sandbox" as const, label: t("runs.tab.sandbox"), icon: MonitorPlay }] : []),
    { id: "deliverables", label: t("runs.tab.deliverables"), badge: result && count(result.deliverables.length) },
    {
      id: "checks",
      label: t("runs.tab.checks"),
      badge: result && result.checks.length > 0 && count(`${passedChecks}/${result.checks.length}`),
    },
    { id: "task", label: t("runs.tab.task") },
  ];
  const tab = tabs.find((each) => each.id === search.get("tab"))?.id ?? "activity";
  return (
    <Page
      title={run.name}
      about={
        <span className={styles.crumbs}>
          <Link href="/runs">{t("runs.title")}</Link>
          <span className={styles.id}>{run.id}</span>
          {run.group && <Link href={`/runs/compare/${encodeURIComponent(run.group)}`}>{t("runs.compare")}</Link>}
        </span>
      }
      actions={<RunActions run={run} refetch={refetch} />}
    >
      <div className={styles.outcome}>
        <RunStateBadge run={run} />
        <SharedBadge owned={run} />
        <p>
          {explanation}
          {MODEL_PROBLEMS.has(run.result?.code ?? "") && (
            <>
              {" "}
              <Link href="/settings/models">{t("runs.form.toModels")}</Link>
            </>
          )}
        </p>
      </div>
      {run.result?.code === PROVIDER_KEY_REFUSED && <ServerDetails text={run.result.reason} />}
      {!over && runFeed.feed.build && <ImageBuildStatus build={runFeed.feed.build} />}
      <RunStages run={run} feed={runFeed.feed} />
      <RunMetrics run={run} feed={runFeed.feed} />
      <div className={styles.tabs}>
        <Tabs
          label={t("runs.tabs")}
          tabs={tabs}
          value={tab}
          onChange={(chosen) =>
            setSearch(
              (params) => {
                params.set("tab", chosen);
                return params;
              },
              { replace: true },
            )
          }
        >
          <div className={styles.panel}>
            <h2 className="visually-hidden">{t(`runs.tab.${tab}`)}</h2>
            {tab === "activity" && <AgentActivity {...runFeed} />}
            {tab === "output" && <RunLogs run={run} />}
            {tab === "sandbox" && sandbox && <RunSandbox sandbox={sandbox} run={run} feed={runFeed.feed} />}
            {tab === "deliverables" && <Deliverables run={run} />}
            {tab === "checks" && <CheckResults run={run} />}
            {tab === "task" && <TaskYaml run={run} />}
          </div>
        </Tabs>
      </div>
    </Page>
  );
}

/** Codes of results that the model settings explain. */
const MODEL_PROBLEMS = new Set(["MODEL_NOT_FOUND", PROVIDER_KEY_REFUSED]);
/** Progress of the image build. */
function ImageBuildStatus({ build: { image, step, fraction, steps } }: { build: BuildProgress }) {
  const { t } = useTranslation();
  return (
    <div className={styles.build}>
      <p role="status">{t("runs.building", { image })}</p>
      <progress value={fraction ?? undefined} max={1} aria-label={t("sandboxes.build.progress", { image })} />
      <p className={styles.soft}>
        {fraction === null
          ? step
          : t(steps ? "runs.buildStepOf" : "runs.buildStep", { step, percent: Math.round(fraction * 100), ...steps })}
      </p>
    </div>
  );
}

function RunActions({ run, refetch }: { run: RunDetail; refetch: () => void }) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const me = useCurrentUser();
  const { cancel, retry, remove } = useRunActions();
  const writes = hasScope(me.data, "runs:write");
  const over = isRunOver(run.state);
  const sharing = useSharingMenuItems(`/v1/runs/${encodeURIComponent(run.id)}`, run, refetch);
  return (
    <>
      <Button icon={ScrollText} onClick={() => go(buildUrl("/archive", { run: run.id }))}>
        {t("runs.toArchive")}
      </Button>
      {writes && !over && (
        <Button icon={Ban} onClick={() => void cancel([run], false)} disabled={Boolean(run.cancelling)}>
          {t("runs.cancel")}
        </Button>
      )}
      {writes && over && (
        <Button icon={RotateCcw} onClick={() => void retry([run])}>
          {t("runs.retry")}
        </Button>
      )}
      <Menu
        trigger={<IconButton icon={Ellipsis} label={t("common.more")} />}
        items={[
          {
            label: t("runs.downloadAll"),
            icon: Download,
            onSelect: () =>
              void downloadFile(`/v1/runs/${run.id}/archive`, `${run.id}.zip`, { format: "zip" }).catch(showErrorToast),
          },
          ...(writes ? sharing : []),
          ...(writes && !over
            ? [
                {
                  label: t("runs.cancelHard"),
                  icon: OctagonX,
                  tone: "danger" as const,
                  onSelect: () => void cancel([run], true),
                },
                { label: t("runs.retry"), icon: RotateCcw, onSelect: () => void retry([run]) },
              ]
            : []),
          ...(writes && over
            ? [
                {
                  label: t("common.delete"),
                  icon: Trash2,
                  tone: "danger" as const,
                  onSelect: () => remove([run], () => go("/runs")),
                },
              ]
            : []),
        ]}
      />
    </>
  );
}
