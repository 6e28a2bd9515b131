import { Accessibility, Bot, Copy, Search, Settings2, SquareTerminal, ZoomIn, ZoomOut } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useSession } from "@/session/store";
import type { BoxView } from "@/session/types";
import { Button, IconButton } from "@/ui/Button";
import { Menu } from "@/ui/Menu";
import { useRemembered } from "@/ui/remember";
import { Empty } from "@/ui/states";
import { duration } from "@/ui/Time";
import { toast } from "@/ui/toasts";
import { type AgentCommand, commandsOf } from "./agent-commands";
import { AgentLog } from "./agent-log";
import { Find } from "./Find";
import { makeScreen, type Screen } from "./screen";
import { LARGEST, SMALLEST } from "./sizes";
import styles from "./Terminal.module.css";

interface Props {
  box: BoxView;
  session: string;
  active: boolean;
  /** Show the person's own terminal instead. */
  onOwn: () => void;
}

/** How often the terminal is written to while output streams. */
const EVERY = 80;
/** The same where everything has to be written anew, as when commands run side by side. */
const EVERY_ANEW = 500;

/** The agent's commands and their output as they come. It is read-only: a person types in a terminal of their own. */
export function AgentTerminal({ box, session, active, onOwn }: Props) {
  const { t } = useTranslation();
  const commands = useAgentCommands(session, box);
  const [letters, setLetters] = useRemembered("terminal.size", 13);
  const [reader, setReader] = useRemembered("terminal.reader", false);
  const [finding, setFinding] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const [screen, setScreen] = useState<Screen | null>(null);
  const some = commands.length > 0;
  const wished = useRef({ size: letters, reader });
  wished.current = { size: letters, reader };

  useEffect(() => {
    const target = place.current;
    if (!target || !some) return;
    let over = false;
    let made: Screen | null = null;
    let fitted: ResizeObserver | null = null;
    void makeScreen(target, { ...wished.current, log: true }).then((drawn) => {
      if (over) return drawn.dispose();
      made = drawn;
      drawn.fit();
      drawn.terminal.textarea?.setAttribute("aria-label", t("computers.terminal.agentLog"));
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

  useWritten(screen, commands);

  if (!some)
    return (
      <Empty
        icon={Bot}
        title={t("computers.terminal.agentNothing")}
        action={
          <Button icon={SquareTerminal} onClick={onOwn}>
            {t("computers.terminal.openOwn")}
          </Button>
        }
      >
        {t("computers.terminal.agentNothingHint")}
      </Empty>
    );
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(screen?.terminal.getSelection() ?? "");
      toast(t("common.copied"), { tone: "good", seconds: 2 });
    } catch {
      toast(t("computers.clipboard.denied"), { tone: "danger" });
    }
  };
  const zoom = (by: number) => setLetters(Math.max(SMALLEST, Math.min(LARGEST, letters + by)));
  return (
    <section className={styles.shell} aria-label={t("computers.terminal.agentLog")} hidden={!active}>
      <div className={styles.bar}>
        <span className={styles.state}>{t("computers.terminal.watching")}</span>
        <IconButton
          size="small"
          icon={Search}
          label={t("computers.terminal.find")}
          onClick={() => setFinding(!finding)}
        />
        <IconButton size="small" icon={Copy} label={t("computers.terminal.copy")} onClick={() => void copy()} />
        <Menu
          trigger={<IconButton size="small" icon={Settings2} label={t("computers.terminal.look")} />}
          items={[
            { label: t("computers.terminal.larger"), icon: ZoomIn, onSelect: () => zoom(1) },
            { label: t("computers.terminal.smaller"), icon: ZoomOut, onSelect: () => zoom(-1) },
            {
              label: reader ? t("computers.terminal.readerOff") : t("computers.terminal.readerOn"),
              icon: Accessibility,
              onSelect: () => setReader(!reader),
            },
          ]}
        />
      </div>
      {finding && screen && <Find screen={screen} onClose={() => setFinding(false)} />}
      <div className={styles.place}>
        <div ref={place} className={styles.screen} />
      </div>
    </section>
  );
}

function useAgentCommands(session: string, box: BoxView): AgentCommand[] {
  const calls = useSession(session, (link) => link.view.calls);
  const { id, kind } = box;
  return useMemo(() => commandsOf(calls, { id, kind }), [calls, id, kind]);
}

/** Whether the agent runs a command there now. */
export function useAgentRuns(session: string, box: BoxView): boolean {
  return useAgentCommands(session, box).at(-1)?.state === "running";
}

/** Keep what the terminal shows up to date, in steps: output may come quicker than it can be drawn. */
function useWritten(screen: Screen | null, commands: AgentCommand[]): void {
  const { t } = useTranslation();
  const latest = useRef(commands);
  latest.current = commands;
  const log = useMemo(
    () =>
      screen &&
      new AgentLog(
        { write: (text) => screen.terminal.write(text), reset: () => screen.terminal.reset() },
        {
          exit: (code, seconds) => t("computers.terminal.exitCode", { code, seconds }),
          ended: (seconds) => t("computers.terminal.hasEnded", { seconds }),
          failed: (seconds) => t("computers.terminal.hasFailed", { seconds }),
          cut: t("computers.terminal.cut"),
          duration,
        },
      ),
    [screen, t],
  );
  const timer = useRef<number | null>(null);
  const notBefore = useRef(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: whatever is new is looked up when it is written.
  useEffect(() => {
    if (!log || timer.current !== null) return;
    const wait = Math.max(0, notBefore.current - performance.now());
    timer.current = window.setTimeout(() => {
      timer.current = null;
      const anew = log.show(latest.current);
      notBefore.current = performance.now() + (anew ? EVERY_ANEW : EVERY);
    }, wait);
  }, [log, commands]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a timer of another log must not go on.
  useEffect(
    () => () => {
      if (timer.current !== null) window.clearTimeout(timer.current);
      timer.current = null;
    },
    [log],
  );
}
