import { Accessibility, Bot, Copy, Search, Settings2, SquareTerminal, ZoomIn, ZoomOut } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useSession } from "@/session/store";
import type { SandboxView } from "@/session/types";
import { Button, IconButton } from "@/ui/controls/Button";
import { Menu } from "@/ui/controls/Menu";
import { showToast } from "@/ui/controls/toasts";
import { formatDuration } from "@/ui/format/formats";
import { useStoredState } from "@/ui/hooks/browser-storage";
import { EmptyState } from "@/ui/layout/query-states";
import { type AgentCommand, type AgentSource, agentCommands } from "./agent-commands";
import { AgentLog } from "./agent-log";
import { MAX_FONT_SIZE, MIN_FONT_SIZE } from "./font-sizes";
import styles from "./Terminal.module.css";
import { TerminalSearch } from "./TerminalSearch";
import { createTerminalScreen, type TerminalScreenHandle } from "./xterm-screen";

interface ScreenProps {
  active: boolean;
  /** Switch to the user's own terminal. */
  onOwn: () => void;
}

interface Props extends ScreenProps {
  sandbox: SandboxView;
  agent: AgentSource;
}

/** Write interval while output streams. */
const WRITE_MS = 80;
/** Write interval when everything has to be rewritten, as with parallel commands. */
const REWRITE_MS = 500;

/** Read-only live view of the agent's commands and their output. The user types in a separate terminal. */
export function AgentTerminal({ sandbox, agent, ...more }: Props) {
  return "session" in agent ? (
    <SessionTerminal sandbox={sandbox} session={agent.session} {...more} />
  ) : (
    <CommandScreen commands={agent.commands} {...more} />
  );
}

function SessionTerminal({ sandbox, session, ...more }: ScreenProps & { sandbox: SandboxView; session: string }) {
  return <CommandScreen commands={useSessionCommands(session, sandbox)} {...more} />;
}

function CommandScreen({ commands, active, onOwn }: ScreenProps & { commands: AgentCommand[] }) {
  const { t } = useTranslation();
  const [letters, setLetters] = useStoredState("terminal.size", 13);
  const [reader, setReader] = useStoredState("terminal.reader", false);
  const [finding, setFinding] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const [screen, setScreen] = useState<TerminalScreenHandle | null>(null);
  const some = commands.length > 0;
  const wished = useRef({ size: letters, reader });
  wished.current = { size: letters, reader };

  useEffect(() => {
    const target = place.current;
    if (!target || !some) return;
    let over = false;
    let made: TerminalScreenHandle | null = null;
    let fitted: ResizeObserver | null = null;
    void createTerminalScreen(target, { ...wished.current, log: true }).then((drawn) => {
      if (over) return drawn.dispose();
      made = drawn;
      drawn.fit();
      drawn.terminal.textarea?.setAttribute("aria-label", t("sandboxPanel.terminal.agentLog"));
      fitted = new ResizeObserver(() => drawn.fit());
      fitted.observe(target);
      setScreen(drawn);
    });
    return () => {
      over = true;
      fitted?.disconnect();
      made?.dispose();
      setScreen(null);
    };
  }, [some, t]);

  useEffect(() => {
    if (!screen) return;
    screen.terminal.options.fontSize = letters;
    screen.terminal.options.screenReaderMode = reader;
    screen.fit();
  }, [screen, letters, reader]);

  useTerminalWriter(screen, commands);

  if (!some)
    return (
      <EmptyState
        icon={Bot}
        title={t("sandboxPanel.terminal.agentNothing")}
        action={
          <Button icon={SquareTerminal} onClick={onOwn}>
            {t("sandboxPanel.terminal.openOwn")}
          </Button>
        }
      >
        {t("sandboxPanel.terminal.agentNothingHint")}
      </EmptyState>
    );
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(screen?.terminal.getSelection() ?? "");
      showToast(t("common.copied"), { tone: "good", seconds: 2 });
    } catch {
      showToast(t("sandboxPanel.clipboard.denied"), { tone: "danger" });
    }
  };
  const zoom = (by: number) => setLetters(Math.max(MIN_FONT_SIZE, Math.min(MAX_FONT_SIZE, letters + by)));
  return (
    <section className={styles.shell} aria-label={t("sandboxPanel.terminal.agentLog")} hidden={!active}>
      <div className={styles.bar}>
        <span className={styles.state}>{t("sandboxPanel.terminal.watching")}</span>
        <IconButton
          size="small"
          icon={Search}
          label={t("sandboxPanel.terminal.find")}
          onClick={() => setFinding(!finding)}
        />
        <IconButton size="small" icon={Copy} label={t("sandboxPanel.terminal.copy")} onClick={() => void copy()} />
        <Menu
          trigger={<IconButton size="small" icon={Settings2} label={t("sandboxPanel.terminal.look")} />}
          items={[
            { label: t("sandboxPanel.terminal.larger"), icon: ZoomIn, onSelect: () => zoom(1) },
            { label: t("sandboxPanel.terminal.smaller"), icon: ZoomOut, onSelect: () => zoom(-1) },
            {
              label: reader ? t("sandboxPanel.terminal.readerOff") : t("sandboxPanel.terminal.readerOn"),
              icon: Accessibility,
              onSelect: () => setReader(!reader),
            },
          ]}
        />
      </div>
      {finding && screen && <TerminalSearch screen={screen} onClose={() => setFinding(false)} />}
      <div className={styles.place}>
        <div ref={place} className={styles.screen} />
      </div>
    </section>
  );
}

function useSessionCommands(session: string, sandbox: SandboxView): AgentCommand[] {
  const calls = useSession(session, (link) => link.view.calls);
  const { id, kind } = sandbox;
  return useMemo(() => agentCommands(calls, { id, kind }), [calls, id, kind]);
}

/** Mark that is shown while the agent runs a command in the sandbox. */
export function AgentRunningMark({ sandbox, agent }: { sandbox: SandboxView; agent: AgentSource }) {
  return "session" in agent ? (
    <SessionRunningMark sandbox={sandbox} session={agent.session} />
  ) : (
    <RunningMark commands={agent.commands} />
  );
}

function SessionRunningMark({ sandbox, session }: { sandbox: SandboxView; session: string }) {
  return <RunningMark commands={useSessionCommands(session, sandbox)} />;
}

function RunningMark({ commands }: { commands: AgentCommand[] }) {
  const { t } = useTranslation();
  if (commands.at(-1)?.state !== "running") return null;
  return (
    <>
      <span className={styles.runs} aria-hidden />
      <span className="visually-hidden">{t("sandboxPanel.terminal.agentRuns")}</span>
    </>
  );
}

/** Update the terminal at intervals: output can arrive faster than it can be drawn. */
function useTerminalWriter(screen: TerminalScreenHandle | null, commands: AgentCommand[]): void {
  const { t } = useTranslation();
  const latest = useRef(commands);
  latest.current = commands;
  const log = useMemo(
    () =>
      screen &&
      new AgentLog(
        { write: (text) => screen.terminal.write(text), reset: () => screen.terminal.reset() },
        {
          exit: (code, seconds) => t("sandboxPanel.terminal.exitCode", { code, seconds }),
          ended: (seconds) => t("sandboxPanel.terminal.hasEnded", { seconds }),
          failed: (seconds) => t("sandboxPanel.terminal.hasFailed", { seconds }),
          cut: t("sandboxPanel.terminal.cut"),
          duration: formatDuration,
        },
      ),
    [screen, t],
  );
  const timer = useRef<number | null>(null);
  const notBefore = useRef(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: new commands are read when they are written.
  useEffect(() => {
    if (!log || timer.current !== null) return;
    const wait = Math.max(0, notBefore.current - performance.now());
    timer.current = window.setTimeout(() => {
      timer.current = null;
      const rewritten = log.show(latest.current);
      notBefore.current = performance.now() + (rewritten ? REWRITE_MS : WRITE_MS);
    }, wait);
  }, [log, commands]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the timer of another log must stop.
  useEffect(
    () => () => {
      if (timer.current !== null) window.clearTimeout(timer.current);
      timer.current = null;
    },
    [log],
  );
}
