import { Box, Code, Globe, type LucideIcon, Monitor, MonitorX, Smartphone } from "lucide-react";
import { useTranslation } from "react-i18next";
import type { SandboxView } from "@/session/types";
import { EmptyState } from "@/ui/layout/query-states";
import { safeDisplayName } from "./files/sandbox-paths";
import styles from "./SandboxPanel.module.css";
import { SandboxViews } from "./SandboxViews";
import { useSandboxKinds } from "./sandbox-queries";
import { availableView, type SandboxViewName } from "./sandbox-views";
import type { AgentCommandSource } from "./terminal/agent-commands";
import { clearUrlChoice } from "./useUrlChoice";

export type { SandboxViewName as View } from "./sandbox-views";

export interface SandboxPanelProps {
  /** Sandboxes to show, in tab order. */
  sandboxes: SandboxView[];
  /** Chosen sandbox and view; null if none. */
  chosen: { sandbox: string; view: SandboxViewName } | null;
  onChoose: (sandbox: string, view: SandboxViewName) => void;
  /** The agent that works in the sandboxes, for its terminal and its tool calls. */
  agent?: AgentCommandSource;
}

const ICONS: Record<string, LucideIcon> = {
  code: Code,
  browser: Globe,
  mobile: Smartphone,
  linux: Monitor,
  windows: Monitor,
};

/** Tab per sandbox, each with its views. */
export function SandboxPanel({ sandboxes, chosen, onChoose, agent }: SandboxPanelProps) {
  const { t } = useTranslation();
  const kinds = useSandboxKinds().data;
  const sandbox = sandboxes.find((each) => each.id === chosen?.sandbox) ?? sandboxes[0];
  if (!sandbox)
    return (
      <EmptyState icon={MonitorX} title={t("sandboxPanel.none")}>
        {t("sandboxPanel.noneHint")}
      </EmptyState>
    );
  const screenOf = (kind: string) => kinds?.find((each) => each.name === kind)?.screen;
  const view = availableView(
    chosen?.sandbox === sandbox.id ? chosen.view : "desktop",
    sandbox.kind,
    screenOf(sandbox.kind),
  );
  const choose = (sandbox: string, next: SandboxViewName) => {
    clearUrlChoice();
    onChoose(sandbox, next);
  };
  return (
    <section className={styles.panel} aria-label={t("sandboxPanel.label")}>
      {sandboxes.length > 1 && (
        <div className={styles.tabs} role="tablist" aria-label={t("sandboxPanel.label")}>
          {sandboxes.map((each) => {
            const Icon = ICONS[each.kind] ?? Box;
            return (
              <button
                key={each.id}
                type="button"
                role="tab"
                className={styles.tab}
                aria-selected={each.id === sandbox.id}
                tabIndex={each.id === sandbox.id ? 0 : -1}
                onClick={() => choose(each.id, availableView(view, each.kind, screenOf(each.kind)))}
                onKeyDown={(event) => focusNextTab(event)}
              >
                <Icon size={15} aria-hidden />
                <span>{tabName(each, sandboxes)}</span>
                <span className={styles.dot} data-state={each.state} aria-hidden />
                {each.state !== "ready" && (
                  <span className={styles.soft}>{t(`sandboxPanel.states.${each.state}`)}</span>
                )}
              </button>
            );
          })}
        </div>
      )}
      <SandboxViews
        sandbox={sandbox}
        sandboxes={sandboxes}
        view={view}
        onView={(next) => choose(sandbox.id, next)}
        agent={agent}
      />
    </section>
  );
}

/** Kind of the sandbox, with the end of its id if several have the same kind. */
function tabName(sandbox: SandboxView, sandboxes: SandboxView[]): string {
  const kind = safeDisplayName(sandbox.kind || sandbox.id);
  const several = sandboxes.filter((each) => each.kind === sandbox.kind).length > 1;
  return several && sandbox.kind ? `${kind} ${sandbox.id.slice(-4)}` : kind;
}

/** Arrow keys move between tabs. */
function focusNextTab(event: React.KeyboardEvent<HTMLButtonElement>): void {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  const tabs = [...(event.currentTarget.parentElement?.querySelectorAll<HTMLButtonElement>('[role="tab"]') ?? [])];
  const next = tabs[(tabs.indexOf(event.currentTarget) + by + tabs.length) % tabs.length];
  event.preventDefault();
  next?.focus();
  next?.click();
}
