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
import { Button, IconButton } from "@/ui/controls/Button";
import { Menu } from "@/ui/controls/Menu";
import { showToast } from "@/ui/controls/toasts";
import { useStoredState } from "@/ui/hooks/browser-storage";
import { ErrorState } from "@/ui/layout/query-states";
import { TakeOverDialog } from "../desktop/TakeOverDialog";
import { safeDisplayName } from "../files/sandbox-paths";
import { useInputControl } from "../input-control";
import { openPopout } from "../open-popout";
import { MAX_FONT_SIZE, MIN_FONT_SIZE } from "./font-sizes";
import styles from "./Terminal.module.css";
import { TerminalSearch } from "./TerminalSearch";
import { useTerminal } from "./useTerminal";

interface Props {
  sandbox: string;
  name: string;
  active: boolean;
  mayType: boolean;
  standalone?: boolean;
  onChange: () => void;
}

export function TerminalScreen({ sandbox, name, active, mayType, standalone, onChange }: Props) {
  const { t } = useTranslation();
  const container = useRef<HTMLDivElement>(null);
  const [restartCount, setRestartCount] = useState(0);
  const [fontSize, setFontSize] = useStoredState("terminal.size", 13);
  const [reader, setReader] = useStoredState("terminal.reader", false);
  const [finding, setFinding] = useState(false);
  const [takeOverFrom, setTakeOverFrom] = useState<string | null>(null);
  const input = useInputControl(sandbox, active);
  const { state, inputHeldBy, screen, connection } = useTerminal(
    container,
    sandbox,
    name,
    restartCount,
    { size: fontSize, reader },
    onChange,
  );
  const other = input.owner.type === "other" ? input.owner : null;
  const locked = !mayType || other !== null;

  useEffect(() => {
    if (screen) screen.terminal.options.disableStdin = locked || state.name !== "live";
  }, [screen, locked, state.name]);
  useEffect(() => {
    // The view may have opened by itself while the user types elsewhere.
    if (active && !document.activeElement?.matches("input, textarea, [contenteditable]")) screen?.terminal.focus();
  }, [active, screen]);
  // Another person took control between two polls.
  const { refresh } = input;
  const refreshRef = useRef(refresh);
  refreshRef.current = refresh;
  useEffect(() => {
    if (inputHeldBy) refreshRef.current();
  }, [inputHeldBy]);

  const copy = async () => {
    try {
      await navigator.clipboard.writeText(screen?.terminal.getSelection() ?? "");
      showToast(t("common.copied"), { tone: "good", seconds: 2 });
    } catch {
      showToast(t("sandboxPanel.clipboard.denied"), { tone: "danger" });
    }
  };
  const paste = async () => {
    try {
      screen?.terminal.paste(await navigator.clipboard.readText());
      screen?.terminal.focus();
    } catch {
      showToast(t("sandboxPanel.terminal.pasteHint"), { tone: "danger" });
    }
  };
  const takeOver = async (force: boolean) => {
    setTakeOverFrom(null);
    if (!(await input.take(force))) setTakeOverFrom(other?.name ?? "");
    else screen?.terminal.focus();
  };
  const zoom = (by: number) => setFontSize(Math.max(MIN_FONT_SIZE, Math.min(MAX_FONT_SIZE, fontSize + by)));

  return (
    <div className={styles.shell}>
      <div className={styles.bar}>
        <span className={styles.state} role="status">
          {stateWords(state.name === "connecting" && state.attempt > 0)}
        </span>
        <IconButton
          size="small"
          icon={Search}
          label={t("sandboxPanel.terminal.find")}
          onClick={() => setFinding(!finding)}
        />
        <IconButton size="small" icon={Copy} label={t("sandboxPanel.terminal.copy")} onClick={() => void copy()} />
        <IconButton
          size="small"
          icon={ClipboardPaste}
          label={t("sandboxPanel.terminal.paste")}
          disabled={locked}
          onClick={() => void paste()}
        />
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
        {!standalone && (
          <IconButton
            size="small"
            icon={ExternalLink}
            label={t("sandboxPanel.popout")}
            onClick={() => openPopout(sandbox, "terminal")}
          />
        )}
      </div>
      {finding && screen && <TerminalSearch screen={screen} onClose={() => setFinding(false)} />}
      {locked && (
        <div className={styles.note} role="status">
          <Lock size={15} aria-hidden />
          <span>
            {!mayType
              ? t("sandboxPanel.terminal.readOnly")
              : other?.sameUser
                ? t("sandboxPanel.terminal.otherWindow")
                : t("sandboxPanel.terminal.held", { name: safeDisplayName(other?.name ?? "") })}
          </span>
          {mayType && (
            <Button size="small" busy={input.busy} onClick={() => void takeOver(other?.sameUser ?? false)}>
              {t("sandboxPanel.input.take")}
            </Button>
          )}
        </div>
      )}
      {input.owner.type === "me" && (
        <div className={styles.note} data-control role="status">
          <span>{t("sandboxPanel.terminal.mine")}</span>
          <Button
            size="small"
            busy={input.busy}
            onClick={() => void input.handBack().then(() => screen?.terminal.focus())}
          >
            {t("sandboxPanel.input.handBack")}
          </Button>
        </div>
      )}
      {state.name === "exited" && (
        <div className={styles.note} role="status">
          <span>
            {state.code === null
              ? t("sandboxPanel.terminal.exited")
              : t("sandboxPanel.terminal.exitedWith", { code: state.code })}
          </span>
          {mayType && (
            <Button size="small" icon={RotateCw} onClick={() => setRestartCount(restartCount + 1)}>
              {t("sandboxPanel.terminal.restart")}
            </Button>
          )}
        </div>
      )}
      {state.name === "refused" && <ErrorState error={state.error} retry={() => setRestartCount(restartCount + 1)} />}
      <div className={styles.container} data-disconnected={state.name !== "live" || undefined}>
        <div ref={container} className={styles.screen} />
      </div>
      <TakeOverDialog name={takeOverFrom} onClose={() => setTakeOverFrom(null)} onTake={() => void takeOver(true)} />
    </div>
  );

  function stateWords(retrying: boolean): ReactNode {
    if (retrying)
      return (
        <>
          {t("sandboxPanel.terminal.again")}{" "}
          <Button size="small" tone="quiet" onClick={() => connection.current?.reconnectNow()}>
            {t("sandboxPanel.desktop.tryNow")}
          </Button>
        </>
      );
    return state.name === "connecting" ? t("sandboxPanel.terminal.connecting") : "";
  }
}
