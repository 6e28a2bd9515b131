import {
  EthernetPort,
  FolderTree,
  Hourglass,
  ListChecks,
  type LucideIcon,
  Monitor,
  MonitorX,
  PanelsTopLeft,
  Pause,
  SquareTerminal,
} from "lucide-react";
import { Suspense, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import type { SandboxView } from "@/session/types";
import { lazyComponent } from "@/shell/navigation/lazy-component";
import { Tabs } from "@/ui/controls/Tabs";
import { translateServerText } from "@/ui/format/server-text";
import { EmptyState, LoadingBars } from "@/ui/layout/query-states";
import { type CachedSandboxView, isSameView, updateCachedViews } from "./cached-views";
import { DesktopView } from "./desktop/Desktop";
import { FilesView } from "./files/FilesView";
import { safeDisplayName } from "./files/sandbox-paths";
import { ImageBuildProgress } from "./ImageBuildProgress";
import { usePreviewOfNewPort } from "./preview/useSandboxPreviews";
import styles from "./SandboxPanel.module.css";
import {
  type SandboxCondition,
  useRefreshOnChange,
  useSandbox,
  useSandboxCondition,
  useSandboxKinds,
} from "./sandbox-queries";
import { availableView, type SandboxViewName, viewsForKind } from "./sandbox-views";
import { ToolOutput } from "./ToolOutput";
import type { AgentCommandSource } from "./terminal/agent-commands";
import { TerminalView } from "./terminal/TerminalView";
import { setUrlChoice } from "./useUrlChoice";

const PreviewView = lazyComponent(async () => ({ default: (await import("./preview/PreviewView")).PreviewView }));
const NetworkView = lazyComponent(async () => ({ default: (await import("./network/NetworkView")).NetworkView }));

interface Props {
  sandbox: SandboxView;
  /** All sandboxes; their views stay mounted for a while. */
  sandboxes?: SandboxView[];
  view: SandboxViewName;
  onView: (view: SandboxViewName) => void;
  agent?: AgentCommandSource;
}

const ICONS: Record<SandboxViewName, LucideIcon> = {
  desktop: Monitor,
  browser: Monitor,
  terminal: SquareTerminal,
  files: FolderTree,
  preview: PanelsTopLeft,
  output: ListChecks,
  network: EthernetPort,
};

/** Views of one sandbox. */
export function SandboxViews({ sandbox, sandboxes = [sandbox], view, onView, agent }: Props) {
  const { t } = useTranslation();
  const kinds = useSandboxKinds().data;
  const screen = kinds?.find((each) => each.name === sandbox.kind)?.screen;
  const current: CachedSandboxView = { sandbox: sandbox.id, view: availableView(view, sandbox.kind, screen) };
  const [cached, setCached] = useState<CachedSandboxView[]>([]);
  const next = updateCachedViews(cached, current, (each) => sandboxes.some(({ id }) => id === each.sandbox));
  if (next.length !== cached.length || next.some((each, at) => !cached[at] || !isSameView(each, cached[at])))
    setCached(next);
  const isRunning = useSandbox(sandbox.id, sandbox.state === "ready").data?.status.state === "Running";
  const pane = useRef<HTMLDivElement>(null);
  usePreviewOfNewPort(sandbox.id, isRunning && sandbox.state === "ready", pane, (port) => {
    onView("preview");
    setUrlChoice("port", String(port));
  });
  // In a stable order: moving an iframe in the page would reload it.
  const ordered = [...next].sort((one, other) => (viewKey(one) < viewKey(other) ? -1 : 1));
  return (
    <Tabs
      label={t("sandboxPanel.viewsOf", { name: safeDisplayName(sandbox.kind || sandbox.id) })}
      tabs={viewsForKind(sandbox.kind, screen).map((id) => ({
        id,
        label: t(`sandboxPanel.views.${id}`),
        icon: ICONS[id],
      }))}
      value={current.view}
      onChange={onView}
    >
      {ordered.map((each) => {
        const shownSandbox = sandboxes.find(({ id }) => id === each.sandbox);
        const active = isSameView(each, current);
        return (
          shownSandbox && (
            <div key={viewKey(each)} ref={active ? pane : undefined} className={styles.view} hidden={!active}>
              <SandboxViewPane sandbox={shownSandbox} view={each.view} active={active} agent={agent} />
            </div>
          )
        );
      })}
    </Tabs>
  );
}

function viewKey(cached: CachedSandboxView): string {
  return `${cached.sandbox} ${cached.view}`;
}

interface SandboxViewPaneProps {
  sandbox: SandboxView;
  view: SandboxViewName;
  active: boolean;
  agent?: AgentCommandSource;
  standalone?: boolean;
}

/** One view, or the reason why it cannot be shown. */
export function SandboxViewPane({ sandbox, view, active, agent, standalone }: SandboxViewPaneProps) {
  const { t } = useTranslation();
  useRefreshOnChange(sandbox);
  const condition = useSandboxCondition(sandbox, active);
  if (sandbox.state === "starting")
    return (
      <EmptyState icon={Hourglass} title={t("chat.doing.starting")}>
        {sandbox.building && <ImageBuildProgress building={sandbox.building} />}
      </EmptyState>
    );
  if (view === "output") return <ToolOutput sandbox={sandbox} agent={agent} active={active} />;
  if (view === "network")
    return (
      <Suspense fallback={<LoadingBars />}>
        <NetworkView
          sandbox={sandbox.id}
          active={active}
          ended={condition.state === "gone" || condition.state === "broken"}
        />
      </Suspense>
    );
  if (condition.state === "gone" || condition.state === "broken" || condition.state === "paused")
    return <SandboxEndedNotice condition={condition} />;
  if (view === "terminal")
    return <TerminalView sandbox={sandbox} active={active} standalone={standalone} agent={agent} />;
  if (view === "preview")
    return (
      <Suspense fallback={<LoadingBars />}>
        <PreviewView sandbox={sandbox.id} active={active} />
      </Suspense>
    );
  if (view === "files") return <FilesView sandbox={sandbox} active={active} standalone={standalone} />;
  return <DesktopView sandbox={sandbox} active={active} standalone={standalone} />;
}

export function SandboxEndedNotice({ condition }: { condition: SandboxCondition }) {
  const { t } = useTranslation();
  const { state, reason } = condition;
  return (
    <EmptyState icon={state === "paused" ? Pause : MonitorX} title={t(`sandboxPanel.ended.${state}`)}>
      {reason && <span className={styles.reason}>{safeDisplayName(translateServerText(reason))}</span>}
      {t(`sandboxPanel.ended.${state}Hint`)}
    </EmptyState>
  );
}
