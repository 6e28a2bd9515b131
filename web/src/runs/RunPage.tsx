import { Ban, Download, Ellipsis, MonitorPlay, OctagonX, RotateCcw, ScrollText, Trash2 } from "lucide-react";
import { Fragment, useEffect } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation, useParams } from "wouter";
import { address, download } from "@/api/client";
import { may, useMe } from "@/shell/me";
import { Button, IconButton } from "@/ui/Button";
import { Menu } from "@/ui/Menu";
import { Page } from "@/ui/Page";
import { SharedBadge, useSharing } from "@/ui/Sharing";
import { useSearchParams } from "@/ui/search";
import { Loaded } from "@/ui/states";
import { type Tab, Tabs } from "@/ui/Tabs";
import { toastError } from "@/ui/toasts";
import { isOver, useRun, type WholeRun } from "./asking";
import { Box, useBox } from "./Box";
import { Checks } from "./Checks";
import { Conversation } from "./Conversation";
import { Deliverables } from "./Deliverables";
import { useDoing } from "./doing";
import { Facts } from "./Facts";
import type { BuildProgress } from "./feed";
import { Logs } from "./Logs";
import styles from "./run.module.css";
import { Stages } from "./Stages";
import { StateBadge } from "./StateBadge";
import { TaskText } from "./TaskText";
import { useFeed } from "./useFeed";
import { useWhy } from "./why";

/** One run: how it is, what happens in it, and what came of it. */
export default function RunPage() {
  const { t } = useTranslation();
  const { id = "" } = useParams<{ id: string }>();
  const run = useRun(id);
  if (run.data) return <Shown key={id} run={run.data} refetch={() => void run.refetch()} />;
  return (
    <Page title={t("runs.one")} about={<Link href="/runs">{t("runs.title")}</Link>}>
      <Loaded query={run} rows={8}>
        {() => null}
      </Loaded>
    </Page>
  );
}

type TabId = "activity" | "output" | "computer" | "deliverables" | "checks" | "task";

function Shown({ run, refetch }: { run: WholeRun; refetch: () => void }) {
  const { t } = useTranslation();
  const [search, setSearch] = useSearchParams();
  const followed = useFeed(run.id);
  const over = isOver(run.state);
  const box = useBox(followed.feed.sandbox ?? run.sandboxId ?? null, over);
  const why = useWhy(run, followed.feed.stages.at(-1)?.stage ?? run.stage);
  const { ended } = followed.feed;
  // Its last event says that it ended; what came of it is to be had right then.
  useEffect(() => {
    if (ended && !over) refetch();
  }, [ended, over, refetch]);

  const result = run.result;
  const passed = result?.checks.filter((check) => check.passed).length ?? 0;
  const count = (value: number | string) => <span className={styles.count}>{value}</span>;
  const tabs: Tab<TabId>[] = [
    { id: "activity", label: t("runs.tab.activity") },
    { id: "output", label: t("runs.tab.output") },
    ...(box ? [{ id: "computer" as const, label: t("runs.tab.computer"), icon: MonitorPlay }] : []),
    { id: "deliverables", label: t("runs.tab.deliverables"), badge: result && count(result.deliverables.length) },
    {
      id: "checks",
      label: t("runs.tab.checks"),
      badge: result && result.checks.length > 0 && count(`${passed}/${result.checks.length}`),
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
      actions={<Actions run={run} refetch={refetch} />}
    >
      <div className={styles.outcome}>
        <StateBadge run={run} />
        <SharedBadge owned={run} />
        <p>
          <Pointed text={why} />
          {run.result?.code === "MODEL_NOT_FOUND" && !why.includes(PAGE_OF_MODELS) && (
            <>
              {" "}
              <Link href="/settings/models">{t("runs.form.toModels")}</Link>
            </>
          )}
        </p>
      </div>
      {!over && followed.feed.build && <Build build={followed.feed.build} />}
      <Stages run={run} feed={followed.feed} />
      <Facts run={run} feed={followed.feed} />
      <div className={styles.tabs}>
        <Tabs
          label={t("runs.tabs")}
          tabs={tabs}
          value={tab}
          onChange={(chosen) =>
            setSearch(
              (now) => {
                now.set("tab", chosen);
                return now;
              },
              { replace: true },
            )
          }
        >
          <div className={styles.panel}>
            <h2 className="visually-hidden">{t(`runs.tab.${tab}`)}</h2>
            {tab === "activity" && <Conversation {...followed} />}
            {tab === "output" && <Logs run={run} />}
            {tab === "computer" && box && <Box box={box} />}
            {tab === "deliverables" && <Deliverables run={run} />}
            {tab === "checks" && <Checks run={run} />}
            {tab === "task" && <TaskText run={run} />}
          </div>
        </Tabs>
      </div>
    </Page>
  );
}

/** Where the server's errors say how to have a model; the console has a page of its own for that. */
const PAGE_OF_MODELS = "docs/how-to/connect-a-provider.md";

/** A reason in which the name of a documentation page is a link to the console's page about the same. */
function Pointed({ text }: { text: string }) {
  return text.split(PAGE_OF_MODELS).map((piece, index) => (
    <Fragment key={index}>
      {index > 0 && <Link href="/settings/models">{PAGE_OF_MODELS}</Link>}
      {piece}
    </Fragment>
  ));
}

/** The build of the run's image, while it is under way. */
function Build({ build: { image, step, fraction } }: { build: BuildProgress }) {
  const { t } = useTranslation();
  return (
    <div className={styles.build}>
      <p role="status">{t("runs.building", { image })}</p>
      <progress value={fraction ?? undefined} max={1} aria-label={t("sandboxes.build.progress", { image })} />
      <p className={styles.soft}>
        {fraction === null ? step : t("runs.buildStep", { step, percent: Math.round(fraction * 100) })}
      </p>
    </div>
  );
}

function Actions({ run, refetch }: { run: WholeRun; refetch: () => void }) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const me = useMe();
  const { cancel, retry, remove } = useDoing();
  const writes = may(me.data, "runs:write");
  const over = isOver(run.state);
  const sharing = useSharing(`/v1/runs/${encodeURIComponent(run.id)}`, run, refetch);
  return (
    <>
      <Button icon={ScrollText} onClick={() => go(address("/archive", { run: run.id }))}>
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
              void download(`/v1/runs/${run.id}/archive`, `${run.id}.zip`, { format: "zip" }).catch(toastError),
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
