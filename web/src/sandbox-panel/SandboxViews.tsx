import {
  FolderTree,
  Hourglass,
  ListChecks,
  type LucideIcon,
  Monitor,
  MonitorX,
  Pause,
  SquareTerminal,
} from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import type { SandboxView } from "@/session/types";
import { Tabs } from "@/ui/controls/Tabs";
import { serverText } from "@/ui/format/server-text";
import { EmptyState } from "@/ui/layout/query-states";
import { type CachedView, isSameView, updateCachedViews } from "./cached-views";
import { DesktopView } from "./desktop/Desktop";
import { FilesView } from "./files/FilesView";
import { displayName } from "./files/sandbox-paths";
import { ImageBuildProgress } from "./ImageBuildProgress";
import styles from "./SandboxPanel.module.css";
import { type SandboxCondition, useKinds, useRefreshOnChange, useSandboxCondition } from "./sandbox-queries";
import { availableView, type View, viewsOf } from "./sandbox-views";
import { ToolOutput } from "./ToolOutput";
import type { AgentSource } from "./terminal/agent-commands";
import { TerminalView } from "./terminal/TerminalView";

interface Props {
  sandbox: SandboxView;
  /** All sandboxes; their views stay mounted for a while. */
  sandboxes?: SandboxView[];
  view: View;
  onView: (view: View) => void;
  agent?: AgentSource;
}

const ICONS: Record<View, LucideIcon> = {
  desktop: Monitor,
  browser: Monitor,
  terminal: SquareTerminal,
  files: FolderTree,
  output: ListChecks,
};

/** Views of one sandbox. */
export function SandboxViews({ sandbox, sandboxes = [sandbox], view, onView, agent }: Props) {
  const { t } = useTranslation();
  const kinds = useKinds().data;
  const screen = kinds?.find((each) => each.name === sandbox.kind)?.screen;
  const now: CachedView = { sandbox: sandbox.id, view: availableView(view, sandbox.kind, screen) };
  const [kept, setKept] = useState<CachedView[]>([]);
  const next = updateCachedViews(kept, now, (each) => sandboxes.some(({ id }) => id === each.sandbox));
  if (next.length !== kept.length || next.some((each, at) => !kept[at] || !isSameView(each, kept[at]))) setKept(next);
  // In a stable order: moving an iframe in the page would reload it.
  const drawn = [...next].sort((one, other) => (viewKey(one) < viewKey(other) ? -1 : 1));
  return (
    <Tabs
      label={t("sandboxPanel.viewsOf", { name: displayName(sandbox.kind || sandbox.id) })}
      tabs={viewsOf(sandbox.kind, screen).map((id) => ({ id, label: t(`sandboxPanel.views.${id}`), icon: ICONS[id] }))}
      value={now.view}
      onChange={onView}
    >
      {drawn.map((each) => {
        const shownSandbox = sandboxes.find(({ id }) => id === each.sandbox);
        const active = isSameView(each, now);
        return (
          shownSandbox && (
            <div key={viewKey(each)} className={styles.view} hidden={!active}>
              <SandboxViewPane sandbox={shownSandbox} view={each.view} active={active} agent={agent} />
            </div>
          )
        );
      })}
    </Tabs>
  );
}

function viewKey(kept: CachedView): string {
  return `${kept.sandbox} ${kept.view}`;
}

interface SandboxViewPaneProps {
  sandbox: SandboxView;
  view: View;
  active: boolean;
  agent?: AgentSource;
  alone?: boolean;
}

/** One view, or why it cannot be shown. */
export function SandboxViewPane({ sandbox, view, active, agent, alone }: SandboxViewPaneProps) {
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
  if (condition.state === "gone" || condition.state === "broken" || condition.state === "paused")
    return <EndedNotice condition={condition} />;
  if (view === "terminal") return <TerminalView sandbox={sandbox} active={active} alone={alone} agent={agent} />;
  if (view === "files") return <FilesView sandbox={sandbox} active={active} alone={alone} />;
  return <DesktopView sandbox={sandbox} active={active} alone={alone} />;
}

export function EndedNotice({ condition }: { condition: SandboxCondition }) {
  const { t } = useTranslation();
  const { state, reason } = condition;
  return (
    <EmptyState icon={state === "paused" ? Pause : MonitorX} title={t(`sandboxPanel.ended.${state}`)}>
      {reason && <span className={styles.reason}>{displayName(serverText(reason))}</span>}
      {t(`sandboxPanel.ended.${state}Hint`)}
    </EmptyState>
  );
}
