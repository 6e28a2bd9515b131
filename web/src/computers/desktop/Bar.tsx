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
import { Key } from "@/ui/Badge";
import { Button, IconButton } from "@/ui/Button";
import { Menu } from "@/ui/Menu";
import { useSandbox } from "../box";
import { shown } from "../files/paths";
import type { Hand } from "../input";
import { popOut } from "../popout";
import styles from "./Desktop.module.css";
import type { Look } from "./link";
import type { Lost } from "./useLost";

interface Props {
  sandbox: string;
  frame: RefObject<HTMLElement | null>;
  hand: Hand;
  lost: Lost;
  live: boolean;
  captured: boolean;
  mayTouch: boolean;
  busy: boolean;
  size: Look["size"];
  alone?: boolean;
  /** Whether something was copied in the box that was not looked at yet. */
  news: boolean;
  onSize: (size: Look["size"]) => void;
  onTake: () => void;
  onHandBack: () => void;
  onClipboard: () => void;
  onKeys: () => void;
}

const SIZES: Look["size"][] = ["fit", "actual", "match"];

/** Who has the input, and what can be done with the screen. */
export function Bar(props: Props) {
  const { t } = useTranslation();
  const { hand, live, size } = props;
  const control = hand.who === "me";
  const full = useFull(props.frame);
  return (
    <div className={[styles.bar, control && styles.control].filter(Boolean).join(" ")}>
      <div className={styles.who} role="status">
        <Who {...props} />
      </div>
      <div className={styles.tools}>
        {!props.mayTouch ? (
          <span className={styles.soft}>{t("computers.input.mayNot")}</span>
        ) : control ? (
          <Button data-control size="small" icon={Bot} busy={props.busy} onClick={props.onHandBack}>
            {t("computers.input.handBack")}
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
            {hand.who === "other" && hand.mine ? t("computers.input.takeHere") : t("computers.input.take")}
          </Button>
        )}
        <span className={styles.dotted}>
          <IconButton
            size="small"
            icon={ClipboardList}
            label={props.news ? t("computers.clipboard.news") : t("computers.clipboard.open")}
            onClick={props.onClipboard}
          />
          {props.news && <span className={styles.dot} aria-hidden />}
        </span>
        <Menu
          trigger={<IconButton size="small" icon={MonitorCog} label={t("computers.desktop.size")} />}
          items={[
            ...SIZES.map((each) => ({
              label: `${each === size ? "✓ " : ""}${t(`computers.desktop.sizes.${each}`)}`,
              onSelect: () => props.onSize(each),
              disabled: each === "match" && !control,
            })),
            { label: t("computers.desktop.ctrlAltDel"), icon: Keyboard, onSelect: props.onKeys, disabled: !control },
          ]}
        />
        {full && (
          <IconButton
            size="small"
            icon={full.on ? Minimize : Maximize}
            label={full.on ? t("computers.desktop.leaveFull") : t("computers.desktop.full")}
            onClick={full.toggle}
          />
        )}
        {!props.alone && (
          <IconButton
            size="small"
            icon={ExternalLink}
            label={t("computers.popout")}
            onClick={() => popOut(props.sandbox, "desktop")}
          />
        )}
      </div>
    </div>
  );
}

function Who({ sandbox, hand, lost, captured, live }: Props): ReactNode {
  const { t } = useTranslation();
  const metadata = useSandbox(sandbox).data?.metadata;
  const unused = metadata && !metadata.session && !metadata["paddock.run"];
  if (hand.who === "me" && !live)
    return (
      <>
        <TriangleAlert size={16} aria-hidden className={styles.warning} />
        <span>{t("computers.input.away")}</span>
      </>
    );
  if (captured)
    return (
      <>
        <Keyboard size={16} aria-hidden />
        <span>
          {t("computers.input.captured")} <Key>Ctrl</Key>+<Key>Alt</Key>+<Key>Shift</Key> {t("computers.input.release")}
        </span>
      </>
    );
  if (lost)
    return (
      <>
        <TriangleAlert size={16} aria-hidden className={styles.warning} />
        <span>
          {lost.why === "taken"
            ? t("computers.input.wasTaken", { name: shown(lost.by) })
            : t("computers.input.wasLost")}
        </span>
      </>
    );
  if (hand.who === "me")
    return (
      <>
        <MousePointer2 size={16} aria-hidden />
        <span>{t("computers.input.mine")}</span>
      </>
    );
  if (hand.who === "other")
    return (
      <>
        <UserRound size={16} aria-hidden />
        <span>
          {hand.mine ? t("computers.input.otherWindow") : t("computers.input.other", { name: shown(hand.name) })}
        </span>
      </>
    );
  if (unused)
    return (
      <>
        <Monitor size={16} aria-hidden />
        <span>{t("computers.input.noAgent")}</span>
      </>
    );
  return (
    <>
      <Bot size={16} aria-hidden />
      <span>{t("computers.input.agent")}</span>
    </>
  );
}

/** Full screen, or null where the browser has none for a part of a page. */
function useFull(frame: RefObject<HTMLElement | null>) {
  const [on, setOn] = useState(false);
  useEffect(() => {
    const look = () => setOn(document.fullscreenElement !== null && document.fullscreenElement === frame.current);
    document.addEventListener("fullscreenchange", look);
    return () => document.removeEventListener("fullscreenchange", look);
  }, [frame]);
  if (!document.fullscreenEnabled) return null;
  const toggle = () => void (on ? document.exitFullscreen() : frame.current?.requestFullscreen());
  return { on, toggle };
}
