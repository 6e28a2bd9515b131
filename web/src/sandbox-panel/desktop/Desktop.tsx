import { useQueryClient } from "@tanstack/react-query";
import { MonitorOff, MonitorPlay } from "lucide-react";
import { useCallback, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import type { SandboxView } from "@/session/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { Button } from "@/ui/controls/Button";
import { showErrorToast, showToast } from "@/ui/controls/toasts";
import { useStoredState } from "@/ui/hooks/browser-storage";
import { EmptyState, ErrorState } from "@/ui/layout/query-states";
import { useInputControl } from "../input-control";
import { ClipboardPanel } from "./ClipboardPanel";
import styles from "./Desktop.module.css";
import { DesktopBar } from "./DesktopBar";
import type { DesktopOptions } from "./desktop-connection";
import { TakeOverDialog } from "./TakeOverDialog";
import { useControlLoss } from "./useControlLoss";
import { useDesktop, useDisplayStatus, useLastScreenshot } from "./useDesktop";

interface Props {
  sandbox: SandboxView;
  /** Whether the view is visible; hidden views stay connected for a while. */
  active: boolean;
  /** Whether the window shows only this view. */
  standalone?: boolean;
}

export function DesktopView({ sandbox, active, standalone }: Props) {
  const { t } = useTranslation();
  const frame = useRef<HTMLDivElement>(null);
  const stage = useRef<HTMLDivElement>(null);
  const me = useCurrentUser().data;
  const mayTouch = !me || hasScope(me, "sandboxes:write");
  const [size, setSize] = useStoredState<DesktopOptions["size"]>("desktop.size", "fit");
  const [takeOverFrom, setTakeOverFrom] = useState<string | null>(null);
  const [panel, setPanel] = useState(false);
  const [captured, setCaptured] = useState(false);

  const [restartCount, setRestartCount] = useState(0);
  const queries = useQueryClient();

  const display = useDisplayStatus(sandbox.id, active);
  const isUp = display.query.data?.up === true;
  const input = useInputControl(sandbox.id, active && isUp);
  const control = input.owner.type === "me";
  const { state, connection, copied, last } = useDesktop(
    stage,
    sandbox.id,
    isUp,
    { control, size },
    restartCount,
    () => {
      void queries.invalidateQueries({ queryKey: ["sandboxPanel", sandbox.id] });
    },
  );
  const live = state.name === "live";
  const screenshot = useLastScreenshot(sandbox.id, isUp && !live && last === null);
  const backdrop = last ?? screenshot;
  const controlLoss = useControlLoss(input.owner, live);

  const start = () => display.start().catch(showErrorToast);
  const take = async (force: boolean) => {
    setTakeOverFrom(null);
    controlLoss.clear();
    if (await input.take(force)) connection.current?.focus();
    else {
      if (document.fullscreenElement) await document.exitFullscreen();
      setTakeOverFrom(input.owner.type === "other" ? input.owner.name : "");
    }
  };
  const releaseKeyboard = useCallback(() => {
    connection.current?.releaseKeyboard();
    frame.current?.querySelector<HTMLButtonElement>("[data-control]")?.focus();
  }, [connection]);
  useKeyboardRelease(frame, control, releaseKeyboard);

  const handBack = () => {
    controlLoss.expect();
    return input.handBack();
  };
  const bar = (
    <DesktopBar
      sandbox={sandbox.id}
      frame={frame}
      owner={input.owner}
      controlLoss={controlLoss.reason}
      live={live}
      captured={captured && control}
      mayTouch={mayTouch}
      busy={input.busy}
      size={size}
      standalone={standalone}
      onSize={setSize}
      onTake={() => void take(input.owner.type === "other" && input.owner.sameUser)}
      onHandBack={() => void handBack()}
      onClipboard={() => setPanel(!panel)}
      hasNewClipboard={copied !== null && !panel}
      onKeys={() => connection.current?.pressCtrlAltDel()}
    />
  );

  if (display.query.data && !isUp)
    return (
      <div className={styles.desktop}>
        <EmptyState
          icon={MonitorOff}
          title={t("sandboxPanel.desktop.off")}
          action={
            mayTouch && (
              <Button tone="accent" icon={MonitorPlay} busy={display.starting} onClick={() => void start()}>
                {t("sandboxPanel.desktop.start")}
              </Button>
            )
          }
        >
          {t("sandboxPanel.desktop.offHint")}
        </EmptyState>
      </div>
    );
  const failed = display.query.error ?? (state.name === "refused" ? state.error : null);
  if (failed && !display.query.data && !(failed instanceof ApiError && failed.unreachable))
    return <ErrorState error={failed} retry={() => void display.query.refetch()} />;
  return (
    <div ref={frame} className={styles.desktop}>
      {bar}
      <div className={styles.body}>
        {/* biome-ignore lint/a11y/useSemanticElements: a remote screen is not a form. */}
        <div
          className={[styles.stage, size === "actual" && styles.actual, control && styles.controlled]
            .filter(Boolean)
            .join(" ")}
          role="group"
          aria-label={t("sandboxPanel.desktop.screen")}
          onFocus={() => setCaptured(true)}
          onBlur={() => setCaptured(false)}
        >
          {backdrop && !live && <img className={styles.shot} src={backdrop} alt={t("sandboxPanel.desktop.shot")} />}
          <div ref={stage} className={[styles.screen, !live && styles.hidden].filter(Boolean).join(" ")} />
          {!live && (
            <div className={styles.over} role="status">
              {state.name === "refused" ? (
                <ErrorState error={state.error} />
              ) : (
                <span className={styles.pill}>
                  {state.name === "over"
                    ? t("sandboxPanel.desktop.over")
                    : state.name === "connecting" && state.attempt > 0
                      ? t("sandboxPanel.desktop.again", { count: state.attempt })
                      : t("sandboxPanel.desktop.connecting")}
                  {state.name === "connecting" && state.attempt > 1 && (
                    <Button size="small" onClick={() => connection.current?.reconnectNow()}>
                      {t("sandboxPanel.desktop.tryNow")}
                    </Button>
                  )}
                  {state.name === "over" && (
                    <Button size="small" onClick={() => setRestartCount(restartCount + 1)}>
                      {t("sandboxPanel.desktop.connect")}
                    </Button>
                  )}
                </span>
              )}
            </div>
          )}
        </div>
        {panel && (
          <ClipboardPanel
            control={control}
            copied={copied?.text ?? null}
            onClose={() => setPanel(false)}
            onPaste={(text) => {
              connection.current?.paste(text);
              showToast(t("sandboxPanel.clipboard.sent"), { tone: "good" });
            }}
            onPress={(keysym) => connection.current?.press(keysym, "")}
          />
        )}
      </div>
      <TakeOverDialog name={takeOverFrom} onClose={() => setTakeOverFrom(null)} onTake={() => void take(true)} />
    </div>
  );
}

/** Ctrl, Alt and Shift together release the keyboard before the desktop receives them. */
function useKeyboardRelease(
  frame: React.RefObject<HTMLElement | null>,
  control: boolean,
  releaseKeyboard: () => void,
): void {
  useEffect(() => {
    const element = frame.current;
    if (!element || !control) return;
    const onKeyDown = (event: KeyboardEvent) => {
      if (!(event.ctrlKey && event.altKey && event.shiftKey)) return;
      event.preventDefault();
      event.stopPropagation();
      releaseKeyboard();
    };
    element.addEventListener("keydown", onKeyDown, true);
    return () => element.removeEventListener("keydown", onKeyDown, true);
  }, [frame, control, releaseKeyboard]);
}
