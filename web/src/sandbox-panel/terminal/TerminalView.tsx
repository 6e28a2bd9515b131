import { useQuery } from "@tanstack/react-query";
import { Bot, Plus, User, X } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import type { SandboxView } from "@/session/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { IconButton } from "@/ui/controls/Button";
import { runWithUndo } from "@/ui/controls/toasts";
import { safeDisplayName } from "../files/sandbox-paths";
import { sandboxApiPath } from "../sandbox-queries";
import { useUrlChoice } from "../useUrlChoice";
import { AgentRunningMark, AgentTerminal } from "./AgentTerminal";
import type { AgentCommandSource } from "./agent-commands";
import styles from "./Terminal.module.css";
import { TerminalScreen } from "./TerminalScreen";
import { unusedTerminalName } from "./terminal-messages";

interface Props {
  sandbox: SandboxView;
  active: boolean;
  standalone?: boolean;
  /** The agent that works in the sandbox; without one there is no agent terminal. */
  agent?: AgentCommandSource;
}

/** Name of the agent's terminal in the URL; no real terminal can have it. */
const AGENT_TERMINAL = "~agent";
const OWN_TERMINAL = "main";

/** Terminals of a sandbox: the agent's, the user's own, and others opened there. */
export function TerminalView({ sandbox, active, standalone, agent }: Props) {
  const { t } = useTranslation();
  const me = useCurrentUser().data;
  const mayType = !me || hasScope(me, "sandboxes:write");
  const [chosen, choose] = useUrlChoice("terminal", active, agent ? AGENT_TERMINAL : OWN_TERMINAL);
  const agentShown = agent !== undefined && chosen === AGENT_TERMINAL;
  const [hidden, setHidden] = useState<string[]>([]);
  const path = `${sandboxApiPath(sandbox.id)}/terminals`;
  const query = useQuery({
    queryKey: ["sandboxPanel", sandbox.id, "terminals"],
    queryFn: async ({ signal }) => (await api.get<Schema<"TerminalListResponse">>(path, { signal })).items,
    enabled: active,
    refetchInterval: active ? 10_000 : false,
  });
  const runningNames = (query.data ?? []).filter((each) => each.running).map((each) => each.name);
  const names = [...new Set([OWN_TERMINAL, ...sandbox.terminals, ...runningNames, chosen])].filter(
    (name) => name !== AGENT_TERMINAL && (name === chosen || !hidden.includes(name)),
  );
  const end = (name: string) => {
    const rest = names.filter((each) => each !== name);
    runWithUndo(
      t("sandboxPanel.terminal.ended", { name: safeDisplayName(name) }),
      t("common.undo"),
      () => api.delete(`${path}/${name}`),
      {
        hide: () => {
          setHidden((before) => [...before, name]);
          choose(rest[0] ?? OWN_TERMINAL);
        },
        show: () => setHidden((before) => before.filter((each) => each !== name)),
      },
    );
  };
  const viewers = query.data?.find((each) => each.name === chosen)?.viewers ?? 0;
  return (
    <div className={styles.view}>
      <div className={styles.names}>
        <div className={styles.list} role="tablist" aria-label={t("sandboxPanel.terminal.list")}>
          {agent && (
            <span className={styles.name} data-chosen={agentShown || undefined}>
              <button type="button" role="tab" aria-selected={agentShown} onClick={() => choose(AGENT_TERMINAL)}>
                <Bot size={14} aria-hidden />
                {t("sandboxPanel.terminal.agent")}
                <AgentRunningMark sandbox={sandbox} agent={agent} />
              </button>
            </span>
          )}
          {names.map((name) => (
            <span key={name} className={styles.name} data-chosen={name === chosen || undefined}>
              <button type="button" role="tab" aria-selected={name === chosen} onClick={() => choose(name)}>
                {agent && name === OWN_TERMINAL ? (
                  <>
                    <User size={14} aria-hidden />
                    {t("sandboxPanel.terminal.you")}
                  </>
                ) : (
                  safeDisplayName(name)
                )}
              </button>
              {mayType && name !== OWN_TERMINAL && name === chosen && (
                <IconButton
                  size="small"
                  icon={X}
                  label={t("sandboxPanel.terminal.end", { name: safeDisplayName(name) })}
                  onClick={() => end(name)}
                />
              )}
            </span>
          ))}
        </div>
        {mayType && (
          <IconButton
            size="small"
            icon={Plus}
            label={t("sandboxPanel.terminal.new")}
            onClick={() => choose(unusedTerminalName([...names, ...hidden]))}
          />
        )}
        {!agentShown && viewers > 1 && (
          <span className={styles.soft}>{t("sandboxPanel.terminal.viewers", { count: viewers })}</span>
        )}
      </div>
      {agentShown ? (
        <AgentTerminal sandbox={sandbox} agent={agent} active={active} onOpenOwnTerminal={() => choose(OWN_TERMINAL)} />
      ) : (
        <TerminalScreen
          key={`${sandbox.id} ${chosen}`}
          sandbox={sandbox.id}
          name={chosen}
          active={active}
          mayType={mayType}
          standalone={standalone}
          onChange={() => void query.refetch()}
        />
      )}
    </div>
  );
}
