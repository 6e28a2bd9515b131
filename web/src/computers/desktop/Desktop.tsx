import { useQueryClient } from "@tanstack/react-query";
import { MonitorOff, MonitorPlay } from "lucide-react";
import { useCallback, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/client";
import type { BoxView } from "@/session/types";
import { may, useMe } from "@/shell/me";
import { Button } from "@/ui/Button";
import { useRemembered } from "@/ui/remember";
import { Empty, Failed } from "@/ui/states";
import { toast, toastError } from "@/ui/toasts";
import { useInput } from "../input";
import { Bar } from "./Bar";
import { Clipboard } from "./Clipboard";
import styles from "./Desktop.module.css";
import type { Look } from "./link";
import { TakeOver } from "./TakeOver";
import { useDesktop, useDisplay, useShot } from "./useDesktop";
import { useLost } from "./useLost";

interface Props {
  box: BoxView;
  /** Whether it is the view that is looked at; it stays connected a while when it is not. */
  active: boolean;
  /** Whether this window shows nothing else. */
  alone?: boolean;
}

export function Desktop({ box, active, alone }: Props) {
  const { t } = useTranslation();
  const frame = useRef<HTMLDivElement>(null);
  const stage = useRef<HTMLDivElement>(null);
  const me = useMe().data;
  const mayTouch = !me || may(me, "sandboxes:write");
  const [size, setSize] = useRemembered<Look["size"]>("desktop.size", "fit");
  const [asking, setAsking] = useState<string | null>(null);
  const [panel, setPanel] = useState(false);
  const [captured, setCaptured] = useState(false);

  const [again, setAgain] = useState(0);
  const queries = useQueryClient();

  const display = useDisplay(box.id, active);
  const up = display.query.data?.up === true;
  const input = useInput(box.id, active && up);
  const control = input.hand.who === "me";
  const { state, link, copied, last } = useDesktop(stage, box.id, up, { control, size }, again, () => {
    void queries.invalidateQueries({ queryKey: ["computers", box.id] });
  });
  const live = state.name === "live";
  const taken = useShot(box.id, up && !live && last === null);
  const shot = last ?? taken;
  const lost = useLost(input.hand, live);

  const start = () => display.start().catch(toastError);
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
  useRelease(frame, control, letGo);

  const handBack = () => {
    lost.expect();
    return input.handBack();
  };
  const bar = (
    <Bar
      sandbox={box.id}
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
        <Empty
          icon={MonitorOff}
          title={t("computers.desktop.off")}
          action={
            mayTouch && (
              <Button tone="accent" icon={MonitorPlay} busy={display.starting} onClick={() => void start()}>
                {t("computers.desktop.start")}
              </Button>
            )
          }
        >
          {t("computers.desktop.offHint")}
        </Empty>
      </div>
    );
  const failed = display.query.error ?? (state.name === "refused" ? state.error : null);
  if (failed && !display.query.data && !(failed instanceof ApiError && failed.unreachable))
    return <Failed error={failed} retry={() => void display.query.refetch()} />;
  return (
    <div ref={frame} className={styles.desktop}>
      {bar}
      <div className={styles.body}>
        {/* biome-ignore lint/a11y/useSemanticElements: it is a screen of another computer, no form. */}
        <div
          className={[styles.stage, size === "actual" && styles.actual, control && styles.mine]
            .filter(Boolean)
            .join(" ")}
          role="group"
          aria-label={t("computers.desktop.screen")}
          onFocus={() => setCaptured(true)}
          onBlur={() => setCaptured(false)}
        >
          {shot && !live && <img className={styles.shot} src={shot} alt={t("computers.desktop.shot")} />}
          <div ref={stage} className={[styles.screen, !live && styles.hidden].filter(Boolean).join(" ")} />
          {!live && (
            <div className={styles.over} role="status">
              {state.name === "refused" ? (
                <Failed error={state.error} />
              ) : (
                <span className={styles.pill}>
                  {state.name === "over"
                    ? t("computers.desktop.over")
                    : state.name === "connecting" && state.attempt > 0
                      ? t("computers.desktop.again", { count: state.attempt })
                      : t("computers.desktop.connecting")}
                  {state.name === "connecting" && state.attempt > 1 && (
                    <Button size="small" onClick={() => link.current?.now()}>
                      {t("computers.desktop.tryNow")}
                    </Button>
                  )}
                  {state.name === "over" && (
                    <Button size="small" onClick={() => setAgain(again + 1)}>
                      {t("computers.desktop.connect")}
                    </Button>
                  )}
                </span>
              )}
            </div>
          )}
        </div>
        {panel && (
          <Clipboard
            control={control}
            copied={copied?.text ?? null}
            onClose={() => setPanel(false)}
            onPaste={(text) => {
              link.current?.paste(text);
              toast(t("computers.clipboard.sent"), { tone: "good" });
            }}
            onPress={(keysym) => link.current?.press(keysym, "")}
          />
        )}
      </div>
      <TakeOver name={asking} onClose={() => setAsking(null)} onTake={() => void take(true)} />
    </div>
  );
}

/** Ctrl, Alt and Shift together take the keyboard back from the desktop, before it sees them. */
function useRelease(frame: React.RefObject<HTMLElement | null>, control: boolean, letGo: () => void): void {
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
