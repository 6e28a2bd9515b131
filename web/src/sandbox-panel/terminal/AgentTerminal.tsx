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
import { type AgentCommand, type AgentCommandSource, agentCommandsInSandbox } from "./agent-commands";
import { AgentTerminalLog } from "./agent-terminal-log";
import { MAX_FONT_SIZE, MIN_FONT_SIZE } from "./font-sizes";
import styles from "./Terminal.module.css";
import { TerminalSearch } from "./TerminalSearch";
import { createTerminalScreen, type TerminalScreenHandle } from "./xterm-screen";

interface ScreenProps {
  active: boolean;
  /** Switch to the user's own terminal. */
  onOpenOwnTerminal: () => void;
}

interface Props extends ScreenProps {
  sandbox: SandboxView;
  agent: AgentCommandSource;
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

function CommandScreen({ commands, active, onOpenOwnTerminal }: ScreenProps & { commands: AgentCommand[] }) {
  const { t } = useTranslation();
  const [fontSize, setFontSize] = useStoredState("terminal.size", 13);
  const [reader, setReader] = useStoredState("terminal.reader", false);
  const [finding, setFinding] = useState(false);
  const container = useRef<HTMLDivElement>(null);
  const [screen, setScreen] = useState<TerminalScreenHandle | null>(null);
  const hasCommands = commands.length > 0;
  const options = useRef({ size: fontSize, reader });
  options.current = { size: fontSize, reader };

  useEffect(() => {
    const target = container.current;
    if (!target || !hasCommands) return;
    let over = false;
    let created: TerminalScreenHandle | null = null;
    let resizeObserver: ResizeObserver | null = null;
    const fit = () => void created?.fit();
    void createTerminalScreen(target, { ...options.current, log: true }, fit).then((handle) => {
      if (over) return handle.dispose();
      created = handle;
      handle.fit();
      handle.terminal.textarea?.setAttribute("aria-label", t("sandboxPanel.terminal.agentLog"));
      resizeObserver = new ResizeObserver(fit);
      resizeObserver.observe(target);
      setScreen(handle);
    });
    return () => {
      over = true;
      resizeObserver?.disconnect();
      created?.dispose();
      setScreen(null);
    };
  }, [hasCommands, t]);

  useEffect(() => {
    if (!screen) return;
    screen.terminal.options.fontSize = fontSize;
    screen.terminal.options.screenReaderMode = reader;
    screen.fit();
  }, [screen, fontSize, reader]);

  useTerminalWriter(screen, commands);

  if (!hasCommands)
    return (
      <EmptyState
        icon={Bot}
        title={t("sandboxPanel.terminal.agentNothing")}
        action={
          <Button icon={SquareTerminal} onClick={onOpenOwnTerminal}>
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
  const zoom = (by: number) => setFontSize(Math.max(MIN_FONT_SIZE, Math.min(MAX_FONT_SIZE, fontSize + by)));
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
      <div className={styles.container}>
        <div ref={container} className={styles.screen} />
      </div>
    </section>
  );
}

function useSessionCommands(session: string, sandbox: SandboxView): AgentCommand[] {
  const calls = useSession(session, (link) => link.view.calls);
  const { id, kind } = sandbox;
  return useMemo(() => agentCommandsInSandbox(calls, { id, kind }), [calls, id, kind]);
}

/** Mark that is shown while the agent runs a command in the sandbox. */
export function AgentRunningMark({ sandbox, agent }: { sandbox: SandboxView; agent: AgentCommandSource }) {
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
      new AgentTerminalLog(
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
    const delay = Math.max(0, notBefore.current - performance.now());
    timer.current = window.setTimeout(() => {
      timer.current = null;
      const rewritten = log.show(latest.current);
      notBefore.current = performance.now() + (rewritten ? REWRITE_MS : WRITE_MS);
    }, delay);
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
