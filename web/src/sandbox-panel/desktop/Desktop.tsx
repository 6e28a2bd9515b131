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
  alone?: boolean;
}

export function DesktopView({ sandbox, active, alone }: Props) {
  const { t } = useTranslation();
  const frame = useRef<HTMLDivElement>(null);
  const stage = useRef<HTMLDivElement>(null);
  const me = useCurrentUser().data;
  const mayTouch = !me || hasScope(me, "sandboxes:write");
  const [size, setSize] = useStoredState<DesktopOptions["size"]>("desktop.size", "fit");
  const [asking, setAsking] = useState<string | null>(null);
  const [panel, setPanel] = useState(false);
  const [captured, setCaptured] = useState(false);

  const [again, setAgain] = useState(0);
  const queries = useQueryClient();

  const display = useDisplayStatus(sandbox.id, active);
  const up = display.query.data?.up === true;
  const input = useInputControl(sandbox.id, active && up);
  const control = input.hand.who === "me";
  const { state, link, copied, last } = useDesktop(stage, sandbox.id, up, { control, size }, again, () => {
    void queries.invalidateQueries({ queryKey: ["sandboxPanel", sandbox.id] });
  });
  const live = state.name === "live";
  const taken = useLastScreenshot(sandbox.id, up && !live && last === null);
  const shot = last ?? taken;
  const lost = useControlLoss(input.hand, live);

  const start = () => display.start().catch(showErrorToast);
  const take = async (force: boolean) => {
    setAsking(null);
    lost.clear();
    if (await input.take(force)) link.current?.focus();
    else {
      if (document.fullscreenElement) await document.exitFullscreen();
      setAsking(input.hand.who === "other" ? input.hand.name : "");
    }
  };
  const letGo = useCallback(() => {
    link.current?.letGo();
    frame.current?.querySelector<HTMLButtonElement>("[data-control]")?.focus();
  }, [link]);
  useKeyboardRelease(frame, control, letGo);

  const handBack = () => {
    lost.expect();
    return input.handBack();
  };
  const bar = (
    <DesktopBar
      sandbox={sandbox.id}
      frame={frame}
      hand={input.hand}
      lost={lost.reason}
      live={live}
      captured={captured && control}
      mayTouch={mayTouch}
      busy={input.busy}
      size={size}
      alone={alone}
      onSize={setSize}
      onTake={() => void take(input.hand.who === "other" && input.hand.mine)}
      onHandBack={() => void handBack()}
      onClipboard={() => setPanel(!panel)}
      news={copied !== null && !panel}
      onKeys={() => link.current?.pressCtrlAltDel()}
    />
  );

  if (display.query.data && !up)
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
          className={[styles.stage, size === "actual" && styles.actual, control && styles.mine]
            .filter(Boolean)
            .join(" ")}
          role="group"
          aria-label={t("sandboxPanel.desktop.screen")}
          onFocus={() => setCaptured(true)}
          onBlur={() => setCaptured(false)}
        >
          {shot && !live && <img className={styles.shot} src={shot} alt={t("sandboxPanel.desktop.shot")} />}
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
                    <Button size="small" onClick={() => link.current?.now()}>
                      {t("sandboxPanel.desktop.tryNow")}
                    </Button>
                  )}
                  {state.name === "over" && (
                    <Button size="small" onClick={() => setAgain(again + 1)}>
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
              link.current?.paste(text);
              showToast(t("sandboxPanel.clipboard.sent"), { tone: "good" });
            }}
            onPress={(keysym) => link.current?.press(keysym, "")}
          />
        )}
      </div>
      <TakeOverDialog name={asking} onClose={() => setAsking(null)} onTake={() => void take(true)} />
    </div>
  );
}

/** Ctrl, Alt and Shift together release the keyboard before the desktop receives them. */
function useKeyboardRelease(frame: React.RefObject<HTMLElement | null>, control: boolean, letGo: () => void): void {
  useEffect(() => {
    const place = frame.current;
    if (!place || !control) return;
    const watch = (event: KeyboardEvent) => {
      if (!(event.ctrlKey && event.altKey && event.shiftKey)) return;
      event.preventDefault();
      event.stopPropagation();
      letGo();
    };
    place.addEventListener("keydown", watch, true);
    return () => place.removeEventListener("keydown", watch, true);
  }, [frame, control, letGo]);
}
