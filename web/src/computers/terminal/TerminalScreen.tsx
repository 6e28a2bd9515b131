import {
  Accessibility,
  ClipboardPaste,
  Copy,
  ExternalLink,
  Lock,
  RotateCw,
  Search,
  Settings2,
  ZoomIn,
  ZoomOut,
} from "lucide-react";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button, IconButton } from "@/ui/Button";
import { Menu } from "@/ui/Menu";
import { useRemembered } from "@/ui/remember";
import { Failed } from "@/ui/states";
import { toast } from "@/ui/toasts";
import { TakeOver } from "../desktop/TakeOver";
import { shown } from "../files/paths";
import { useInput } from "../input";
import { popOut } from "../popout";
import { Find } from "./Find";
import { LARGEST, SMALLEST } from "./sizes";
import styles from "./Terminal.module.css";
import { useTerminal } from "./useTerminal";

interface Props {
  sandbox: string;
  name: string;
  active: boolean;
  mayType: boolean;
  alone?: boolean;
  onChange: () => void;
}

export function TerminalScreen({ sandbox, name, active, mayType, alone, onChange }: Props) {
  const { t } = useTranslation();
  const place = useRef<HTMLDivElement>(null);
  const [again, setAgain] = useState(0);
  const [letters, setLetters] = useRemembered("terminal.size", 13);
  const [reader, setReader] = useRemembered("terminal.reader", false);
  const [finding, setFinding] = useState(false);
  const [asking, setAsking] = useState<string | null>(null);
  const input = useInput(sandbox, active);
  const { state, heldBy, screen, link } = useTerminal(place, sandbox, name, again, { size: letters, reader }, onChange);
  const other = input.hand.who === "other" ? input.hand : null;
  const locked = !mayType || other !== null;

  useEffect(() => {
    if (screen) screen.terminal.options.disableStdin = locked || state.name !== "live";
  }, [screen, locked, state.name]);
  useEffect(() => {
    // It may have opened by itself, while somebody writes elsewhere.
    if (active && !document.activeElement?.matches("input, textarea, [contenteditable]")) screen?.terminal.focus();
  }, [active, screen]);
  // Somebody took it between two looks.
  const { look } = input;
  const looking = useRef(look);
  looking.current = look;
  useEffect(() => {
    if (heldBy) looking.current();
  }, [heldBy]);

  const copy = async () => {
    try {
      await navigator.clipboard.writeText(screen?.terminal.getSelection() ?? "");
      toast(t("common.copied"), { tone: "good", seconds: 2 });
    } catch {
      toast(t("computers.clipboard.denied"), { tone: "danger" });
    }
  };
  const paste = async () => {
    try {
      screen?.terminal.paste(await navigator.clipboard.readText());
      screen?.terminal.focus();
    } catch {
      toast(t("computers.terminal.pasteHint"), { tone: "danger" });
    }
  };
  const takeOver = async (force: boolean) => {
    setAsking(null);
    if (!(await input.take(force))) setAsking(other?.name ?? "");
    else screen?.terminal.focus();
  };
  const zoom = (by: number) => setLetters(Math.max(SMALLEST, Math.min(LARGEST, letters + by)));

  return (
    <div className={styles.shell}>
      <div className={styles.bar}>
        <span className={styles.state} role="status">
          {stateWords(state.name === "connecting" && state.attempt > 0)}
        </span>
        <IconButton
          size="small"
          icon={Search}
          label={t("computers.terminal.find")}
          onClick={() => setFinding(!finding)}
        />
        <IconButton size="small" icon={Copy} label={t("computers.terminal.copy")} onClick={() => void copy()} />
        <IconButton
          size="small"
          icon={ClipboardPaste}
          label={t("computers.terminal.paste")}
          disabled={locked}
          onClick={() => void paste()}
        />
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
        {!alone && (
          <IconButton
            size="small"
            icon={ExternalLink}
            label={t("computers.popout")}
            onClick={() => popOut(sandbox, "terminal")}
          />
        )}
      </div>
      {finding && screen && <Find screen={screen} onClose={() => setFinding(false)} />}
      {locked && (
        <div className={styles.note} role="status">
          <Lock size={15} aria-hidden />
          <span>
            {!mayType
              ? t("computers.terminal.readOnly")
              : other?.mine
                ? t("computers.terminal.otherWindow")
                : t("computers.terminal.held", { name: shown(other?.name ?? "") })}
          </span>
          {mayType && (
            <Button size="small" busy={input.busy} onClick={() => void takeOver(other?.mine ?? false)}>
              {t("computers.input.take")}
            </Button>
          )}
        </div>
      )}
      {input.hand.who === "me" && (
        <div className={styles.note} data-mine role="status">
          <span>{t("computers.terminal.mine")}</span>
          <Button
            size="small"
            busy={input.busy}
            onClick={() => void input.handBack().then(() => screen?.terminal.focus())}
          >
            {t("computers.input.handBack")}
          </Button>
        </div>
      )}
      {state.name === "exited" && (
        <div className={styles.note} role="status">
          <span>
            {state.code === null
              ? t("computers.terminal.exited")
              : t("computers.terminal.exitedWith", { code: state.code })}
          </span>
          {mayType && (
            <Button size="small" icon={RotateCw} onClick={() => setAgain(again + 1)}>
              {t("computers.terminal.restart")}
            </Button>
          )}
        </div>
      )}
      {state.name === "refused" && <Failed error={state.error} retry={() => setAgain(again + 1)} />}
      <div className={styles.place} data-away={state.name !== "live" || undefined}>
        <div ref={place} className={styles.screen} />
      </div>
      <TakeOver name={asking} onClose={() => setAsking(null)} onTake={() => void takeOver(true)} />
    </div>
  );

  function stateWords(retrying: boolean): ReactNode {
    if (retrying)
      return (
        <>
          {t("computers.terminal.again")}{" "}
          <Button size="small" tone="quiet" onClick={() => link.current?.now()}>
            {t("computers.desktop.tryNow")}
          </Button>
        </>
      );
    return state.name === "connecting" ? t("computers.terminal.connecting") : "";
  }
}
