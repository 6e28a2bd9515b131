import { CircleCheck, CircleSlash, CircleX, ListChecks, LoaderCircle, type LucideIcon } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { useSession } from "@/session/store";
import type { CallView, SandboxView } from "@/session/types";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { finalTerminalText } from "@/ui/content/terminal-text";
import { Button } from "@/ui/controls/Button";
import { formatDuration, RelativeTime } from "@/ui/format/formats";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { safeDisplayName } from "./files/sandbox-paths";
import styles from "./SandboxPanel.module.css";
import type { AgentCommandSource } from "./terminal/agent-commands";
import { type ToolRun, toolRunsFromCalls, toolRunsFromEvents } from "./tool-runs";
import { useSandboxEvents } from "./useSandboxEvents";

interface Props {
  sandbox: SandboxView;
  agent?: AgentCommandSource;
  active: boolean;
}

/** Tool runs of a sandbox, newest first. */
export function ToolOutput({ sandbox, agent, active }: Props) {
  return agent && "session" in agent ? (
    <SessionToolOutput sandbox={sandbox} session={agent.session} />
  ) : (
    <SandboxToolOutput sandbox={sandbox} active={active} />
  );
}

function SessionToolOutput({ sandbox, session }: { sandbox: SandboxView; session: string }) {
  const calls = useSession(session, (link) => link.view.calls);
  return <ToolRunList runs={toolRunsFromCalls(calls, sandbox.id)} />;
}

const TOOL_EVENTS = ["tool.called"] as const;

function SandboxToolOutput({ sandbox, active }: { sandbox: SandboxView; active: boolean }) {
  const query = useSandboxEvents(sandbox.id, TOOL_EVENTS, active);
  return <QueryResult query={query}>{(events) => <ToolRunList runs={toolRunsFromEvents(events)} />}</QueryResult>;
}

const INITIAL_ROWS = 100;

function ToolRunList({ runs }: { runs: ToolRun[] }) {
  const { t } = useTranslation();
  const [maxRows, setMaxRows] = useState(INITIAL_ROWS);
  if (!runs.length)
    return (
      <EmptyState icon={ListChecks} title={t("sandboxPanel.output.none")}>
        {t("sandboxPanel.output.noneHint")}
      </EmptyState>
    );
  const visibleRuns = runs.slice(-maxRows).reverse();
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard.
    <section className={styles.output} aria-label={t("sandboxPanel.views.output")} tabIndex={0}>
      <ol className={styles.toolRuns}>
        {visibleRuns.map((run) => (
          <li key={run.id}>
            <ToolRunRow run={run} />
          </li>
        ))}
      </ol>
      {maxRows < runs.length && (
        <Button size="small" onClick={() => setMaxRows(maxRows + INITIAL_ROWS)}>
          {t("sandboxPanel.output.earlier", { count: runs.length - maxRows })}
        </Button>
      )}
    </section>
  );
}

const ICONS: Record<ToolRun["state"], LucideIcon> = {
  running: LoaderCircle,
  done: CircleCheck,
  failed: CircleX,
  refused: CircleSlash,
};

function ToolRunRow({ run }: { run: ToolRun }) {
  const { t } = useTranslation();
  const Icon = ICONS[run.state];
  const head = (
    <>
      <Icon
        size={16}
        className={styles[`toolRun-${run.state}`]}
        role="img"
        aria-label={t(`sandboxPanel.output.${run.state}`)}
      />
      <span className={styles.tool}>{safeDisplayName(run.tool)}</span>
      <bdi className={styles.summary}>{safeDisplayName(run.summary)}</bdi>
      <span className={styles.when}>
        {run.seconds !== null && <span>{formatDuration(run.seconds)}</span>} <RelativeTime at={run.at} />
      </span>
    </>
  );
  return (
    <>
      {run.call ? (
        <details className={styles.toolRun}>
          <summary>{head}</summary>
          <CallDetails call={run.call} />
        </details>
      ) : (
        <div className={styles.toolRun}>{head}</div>
      )}
      {run.omittedCalls > 0 && (
        <p className={styles.soft}>{t("sandboxPanel.output.leftOut", { count: run.omittedCalls })}</p>
      )}
    </>
  );
}

function CallDetails({ call }: { call: CallView }) {
  const { t } = useTranslation();
  const resultText = call.result?.content
    .map((part) => (part.type === "text" ? part.text : `[${safeDisplayName(part.name)}]`))
    .join("\n");
  return (
    <div className={styles.details}>
      <CodeBlock wrap label={t("sandboxPanel.output.arguments")} text={JSON.stringify(call.arguments, null, 2) ?? ""} />
      {resultText !== undefined && <CodeBlock wrap label={t("sandboxPanel.output.result")} text={resultText} />}
      {call.output && <CodeBlock wrap label={t("sandboxPanel.output.soFar")} text={finalTerminalText(call.output)} />}
    </div>
  );
}
