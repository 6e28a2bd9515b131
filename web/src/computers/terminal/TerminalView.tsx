import { useQuery } from "@tanstack/react-query";
import { Bot, Plus, User, X } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import type { BoxView } from "@/session/types";
import { may, useMe } from "@/shell/me";
import { IconButton } from "@/ui/Button";
import { undoable } from "@/ui/toasts";
import { sandboxPath } from "../box";
import { shown } from "../files/paths";
import { useLinked } from "../useLinked";
import { AgentTerminal, useAgentRuns } from "./AgentTerminal";
import { freshName } from "./frames";
import styles from "./Terminal.module.css";
import { TerminalScreen } from "./TerminalScreen";

interface Props {
  box: BoxView;
  active: boolean;
  alone?: boolean;
  /** The chat whose agent uses the sandbox; without one there is no terminal of an agent. */
  session?: string;
}

/** The agent's terminal in the address of the page. No terminal of a sandbox has such a name. */
const AGENT = "~agent";
const OWN = "main";

/** The terminals of a sandbox: the agent's own, the person's, and others that were opened there. */
export function TerminalView({ box, active, alone, session }: Props) {
  const { t } = useTranslation();
  const me = useMe().data;
  const mayType = !me || may(me, "sandboxes:write");
  const [chosen, choose] = useLinked("terminal", active, session ? AGENT : OWN);
  const agentShown = session !== undefined && chosen === AGENT;
  const [hidden, setHidden] = useState<string[]>([]);
  const path = `${sandboxPath(box.id)}/terminals`;
  const query = useQuery({
    queryKey: ["computers", box.id, "terminals"],
    queryFn: async ({ signal }) => (await api.get<Schema<"TerminalList">>(path, { signal })).items,
    enabled: active,
    refetchInterval: active ? 10_000 : false,
  });
  const listed = (query.data ?? []).filter((each) => each.running).map((each) => each.name);
  const names = [...new Set([OWN, ...box.terminals, ...listed, chosen])].filter(
    (name) => name !== AGENT && (name === chosen || !hidden.includes(name)),
  );
  const end = (name: string) => {
    const rest = names.filter((each) => each !== name);
    undoable(
      t("computers.terminal.ended", { name: shown(name) }),
      t("common.undo"),
      () => api.delete(`${path}/${name}`),
      {
        hide: () => {
          setHidden((before) => [...before, name]);
          choose(rest[0] ?? OWN);
        },
        show: () => setHidden((before) => before.filter((each) => each !== name)),
      },
    );
  };
  const viewers = query.data?.find((each) => each.name === chosen)?.viewers ?? 0;
  return (
    <div className={styles.view}>
      <div className={styles.names}>
        <div className={styles.list} role="tablist" aria-label={t("computers.terminal.list")}>
          {session && (
            <span className={styles.name} data-chosen={agentShown || undefined}>
              <AgentTab session={session} box={box} chosen={agentShown} onChoose={() => choose(AGENT)} />
            </span>
          )}
          {names.map((name) => (
            <span key={name} className={styles.name} data-chosen={name === chosen || undefined}>
              <button type="button" role="tab" aria-selected={name === chosen} onClick={() => choose(name)}>
                {session && name === OWN ? (
                  <>
                    <User size={14} aria-hidden />
                    {t("computers.terminal.you")}
                  </>
                ) : (
                  shown(name)
                )}
              </button>
              {mayType && name !== OWN && name === chosen && (
                <IconButton
                  size="small"
                  icon={X}
                  label={t("computers.terminal.end", { name: shown(name) })}
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
            label={t("computers.terminal.new")}
            onClick={() => choose(freshName([...names, ...hidden]))}
          />
        )}
        {!agentShown && viewers > 1 && (
          <span className={styles.soft}>{t("computers.terminal.viewers", { count: viewers })}</span>
        )}
      </div>
      {agentShown ? (
        <AgentTerminal box={box} session={session} active={active} onOwn={() => choose(OWN)} />
      ) : (
        <TerminalScreen
          key={`${box.id} ${chosen}`}
          sandbox={box.id}
          name={chosen}
          active={active}
          mayType={mayType}
          alone={alone}
          onChange={() => void query.refetch()}
        />
      )}
    </div>
  );
}

interface AgentTabProps {
  session: string;
  box: BoxView;
  chosen: boolean;
  onChoose: () => void;
}

function AgentTab({ session, box, chosen, onChoose }: AgentTabProps) {
  const { t } = useTranslation();
  const runs = useAgentRuns(session, box);
  return (
    <button type="button" role="tab" aria-selected={chosen} onClick={onChoose}>
      <Bot size={14} aria-hidden />
      {t("computers.terminal.agent")}
      {runs && (
        <>
          <span className={styles.runs} aria-hidden />
          <span className="visually-hidden">{t("computers.terminal.agentRuns")}</span>
        </>
      )}
    </button>
  );
}
