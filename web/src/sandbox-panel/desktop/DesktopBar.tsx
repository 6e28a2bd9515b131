import { useQuery } from "@tanstack/react-query";
import {
  Bot,
  ClipboardList,
  ExternalLink,
  Hand as HandIcon,
  Keyboard,
  Maximize,
  Minimize,
  Monitor,
  MonitorCog,
  MousePointer2,
  TriangleAlert,
  UserRound,
} from "lucide-react";
import { type ReactNode, type RefObject, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { KeyCap } from "@/ui/controls/Badge";
import { Button, IconButton } from "@/ui/controls/Button";
import { Menu } from "@/ui/controls/Menu";
import { safeDisplayName } from "../files/sandbox-paths";
import type { InputOwner } from "../input-control";
import { openPopout } from "../open-popout";
import { useSandbox } from "../sandbox-queries";
import styles from "./Desktop.module.css";
import type { DesktopOptions } from "./desktop-connection";
import type { ControlLoss } from "./useControlLoss";

interface Props {
  sandbox: string;
  frame: RefObject<HTMLElement | null>;
  owner: InputOwner;
  controlLoss: ControlLoss;
  live: boolean;
  captured: boolean;
  mayTouch: boolean;
  busy: boolean;
  size: DesktopOptions["size"];
  standalone?: boolean;
  /** Whether the sandbox has newly copied text. */
  hasNewClipboard: boolean;
  onSize: (size: DesktopOptions["size"]) => void;
  onTake: () => void;
  onHandBack: () => void;
  onClipboard: () => void;
  onKeys: () => void;
}

const SIZES: DesktopOptions["size"][] = ["fit", "actual", "match"];

/** Control state of the desktop, and actions for the screen. */
export function DesktopBar(props: Props) {
  const { t } = useTranslation();
  const { owner, live, size } = props;
  const control = owner.type === "me";
  const full = useFullScreen(props.frame);
  return (
    <div className={[styles.bar, control && styles.control].filter(Boolean).join(" ")}>
      <div className={styles.controlStatus} role="status">
        <ControlStatus {...props} />
      </div>
      <div className={styles.tools}>
        {!props.mayTouch ? (
          <span className={styles.soft}>{t("sandboxPanel.input.mayNot")}</span>
        ) : control ? (
          <Button data-control size="small" icon={Bot} busy={props.busy} onClick={props.onHandBack}>
            {t("sandboxPanel.input.handBack")}
          </Button>
        ) : (
          <Button
            data-control
            size="small"
            tone="accent"
            icon={HandIcon}
            busy={props.busy}
            disabled={!live}
            onClick={props.onTake}
          >
            {owner.type === "other" && owner.sameUser ? t("sandboxPanel.input.takeHere") : t("sandboxPanel.input.take")}
          </Button>
        )}
        <span className={styles.dotted}>
          <IconButton
            size="small"
            icon={ClipboardList}
            label={props.hasNewClipboard ? t("sandboxPanel.clipboard.news") : t("sandboxPanel.clipboard.open")}
            onClick={props.onClipboard}
          />
          {props.hasNewClipboard && <span className={styles.dot} aria-hidden />}
        </span>
        <Menu
          trigger={<IconButton size="small" icon={MonitorCog} label={t("sandboxPanel.desktop.size")} />}
          items={[
            ...SIZES.map((each) => ({
              label: `${each === size ? "✓ " : ""}${t(`sandboxPanel.desktop.sizes.${each}`)}`,
              onSelect: () => props.onSize(each),
              disabled: each === "match" && !control,
            })),
            { label: t("sandboxPanel.desktop.ctrlAltDel"), icon: Keyboard, onSelect: props.onKeys, disabled: !control },
          ]}
        />
        {full && (
          <IconButton
            size="small"
            icon={full.on ? Minimize : Maximize}
            label={full.on ? t("sandboxPanel.desktop.leaveFull") : t("sandboxPanel.desktop.full")}
            onClick={full.toggle}
          />
        )}
        {!props.standalone && (
          <IconButton
            size="small"
            icon={ExternalLink}
            label={t("sandboxPanel.popout")}
            onClick={() => openPopout(props.sandbox, "desktop")}
          />
        )}
      </div>
    </div>
  );
}

function ControlStatus({ sandbox, owner, controlLoss, captured, live }: Props): ReactNode {
  const { t } = useTranslation();
  const { data } = useSandbox(sandbox);
  const chat = useChatState(owner.type === "agent" ? data?.metadata?.session : undefined);
  if (owner.type === "me" && !live)
    return (
      <>
        <TriangleAlert size={16} aria-hidden className={styles.warning} />
        <span>{t("sandboxPanel.input.away")}</span>
      </>
    );
  if (captured)
    return (
      <>
        <Keyboard size={16} aria-hidden />
        <span>
          {t("sandboxPanel.input.captured")} <KeyCap>Ctrl</KeyCap>+<KeyCap>Alt</KeyCap>+<KeyCap>Shift</KeyCap>{" "}
          {t("sandboxPanel.input.release")}
        </span>
      </>
    );
  if (controlLoss)
    return (
      <>
        <TriangleAlert size={16} aria-hidden className={styles.warning} />
        <span>
          {controlLoss.reason === "taken"
            ? t("sandboxPanel.input.wasTaken", { name: safeDisplayName(controlLoss.by) })
            : t("sandboxPanel.input.wasLost")}
        </span>
      </>
    );
  if (owner.type === "me")
    return (
      <>
        <MousePointer2 size={16} aria-hidden />
        <span>{t("sandboxPanel.input.mine")}</span>
      </>
    );
  if (owner.type === "other")
    return (
      <>
        <UserRound size={16} aria-hidden />
        <span>
          {owner.sameUser
            ? t("sandboxPanel.input.otherWindow")
            : t("sandboxPanel.input.other", { name: safeDisplayName(owner.name) })}
        </span>
      </>
    );
  if (!data) return null;
  if (!data.metadata?.session && !data.metadata?.["paddock.run"])
    return (
      <>
        <Monitor size={16} aria-hidden />
        <span>{t("sandboxPanel.input.noAgent")}</span>
      </>
    );
  // Between two turns the agent controls nothing.
  if (chat.isLoading || chat.data?.state === "idle") return null;
  return (
    <>
      <Bot size={16} aria-hidden />
      <span>{t("sandboxPanel.input.agent")}</span>
    </>
  );
}

/** State of the chat that uses the sandbox, polled while the page is visible. */
function useChatState(id: string | undefined) {
  return useQuery({
    queryKey: ["sandboxPanel", "chat", id],
    queryFn: ({ signal }) => api.get<Schema<"Session">>(`/v1/sessions/${encodeURIComponent(id ?? "")}`, { signal }),
    enabled: id !== undefined,
    refetchInterval: 3_000,
  });
}

/** Full screen of an element, or null if the browser does not support it. */
function useFullScreen(frame: RefObject<HTMLElement | null>) {
  const [on, setOn] = useState(false);
  useEffect(() => {
    const updateFullScreen = () =>
      setOn(document.fullscreenElement !== null && document.fullscreenElement === frame.current);
    document.addEventListener("fullscreenchange", updateFullScreen);
    return () => document.removeEventListener("fullscreenchange", updateFullScreen);
  }, [frame]);
  if (!document.fullscreenEnabled) return null;
  const toggle = () => void (on ? document.exitFullscreen() : frame.current?.requestFullscreen());
  return { on, toggle };
}
