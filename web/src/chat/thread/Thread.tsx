import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown } from "lucide-react";
import {
  type ReactNode,
  type Ref,
  useCallback,
  useEffect,
  useImperativeHandle,
  useMemo,
  useRef,
  useState,
} from "react";
import { useTranslation } from "react-i18next";
import { BuildingImage } from "@/computers/Building";
import type { Outgoing } from "@/session/store";
import type { SessionView } from "@/session/types";
import { useMe } from "@/shell/me";
import { recall, remember } from "@/ui/remember";
import { Answer } from "./Answer";
import { Compacted, Trouble, TurnFoot } from "./Foot";
import { canGoOn, countAfter, type Doing, doing, type Row, rowsOf } from "./rows";
import { OnItsWay, Said } from "./Said";
import { useSticking } from "./sticking";
import styles from "./thread.module.css";

export interface ThreadHandle {
  /** Bring the item that has this id, or this call, onto the screen. */
  show: (id: string) => void;
  toEnd: () => void;
}

interface Props {
  session: string;
  view: SessionView;
  outbox: readonly Outgoing[];
  /** What is to be shown first instead of the end: a message's id. */
  begin?: string | null;
  ref?: Ref<ThreadHandle>;
}

/** Everything that was said, of which only what can be seen is in the page. */
export function Thread({ session, view, outbox, begin, ref }: Props) {
  const { t } = useTranslation();
  const frame = useRef<HTMLElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  // What comes while somebody is here is not marked.
  const [readUntil] = useState(() => {
    const read = recall<string | null>(`chat.read.${session}`, null);
    return read === view.items.at(-1)?.id ? null : read;
  });
  const rows = useMemo(
    () => rowsOf({ items: view.items, turns: view.turns, outbox, readUntil }),
    [view.items, view.turns, outbox, readUntil],
  );
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => frame.current,
    getItemKey: (index) => rows[index]?.id ?? index,
    estimateSize: (index) => estimate(rows[index]),
    overscan: 6,
    paddingStart: 16,
    anchorTo: "end",
  });
  const jump = useCallback(() => {
    const element = frame.current;
    if (element) element.scrollTop = element.scrollHeight;
  }, []);
  const { atEnd, stick, release } = useSticking(frame, inner, jump);
  const [leftAt, setLeftAt] = useState<string | null>(null);
  const last = view.items.at(-1)?.id ?? null;
  useEffect(() => {
    if (!atEnd) setLeftAt((before) => before ?? last);
    else setLeftAt(null);
  }, [atEnd, last]);

  // What was on the screen of a page that somebody looks at has been read.
  useEffect(() => {
    if (!last) return;
    const read = () => atEnd && document.visibilityState === "visible" && remember(`chat.read.${session}`, last);
    read();
    document.addEventListener("visibilitychange", read);
    return () => document.removeEventListener("visibilitychange", read);
  }, [atEnd, last, session]);

  const show = useCallback(
    (wanted: string) => {
      // A tool's result is a message too; it is shown in the card of its call.
      const id = wanted.replace(/^result_/, "");
      const index = rows.findIndex(
        (row) => row.id === id || (row.type === "item" && row.item.type === "answer" && row.item.calls.includes(id)),
      );
      if (index < 0) return;
      release();
      virtual.scrollToIndex(index, { align: "center" });
    },
    [rows, virtual, release],
  );
  useImperativeHandle(ref, () => ({ show, toEnd: stick }), [show, stick]);

  // The first look is at the end, or at what the address names; rows get their real heights meanwhile.
  const begun = useRef(false);
  useEffect(() => {
    if (begun.current || !rows.length) return;
    begun.current = true;
    if (begin) show(begin);
    else stick();
  }, [rows.length, begin, show, stick]);

  const fresh = countAfter(view.items, leftAt);
  return (
    <div className={styles.frame}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard. */}
      <section ref={frame} className={styles.scroll} aria-label={t("chat.thread")} tabIndex={0}>
        <div ref={inner} className={styles.rows} style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((place) => {
            const row = rows[place.index];
            return (
              row && (
                <div
                  key={place.key}
                  ref={virtual.measureElement}
                  data-index={place.index}
                  data-row={row.type}
                  className={styles.row}
                  style={{ transform: `translateY(${place.start}px)` }}
                >
                  <div className={styles.column}>{content(row, view, t("chat.unread"))}</div>
                </div>
              )
            );
          })}
        </div>
        <Now view={view} />
      </section>
      {!atEnd && (
        <button type="button" className={styles.jump} onClick={stick}>
          <ArrowDown size={15} aria-hidden />
          {fresh > 0 ? t("chat.jumpNew", { count: fresh }) : t("chat.jump")}
        </button>
      )}
    </div>
  );
}

function content(row: Row, view: SessionView, unread: string): ReactNode {
  if (row.type === "outgoing") return <OnItsWay outgoing={row.outgoing} />;
  if (row.type === "turn") return <TurnFoot turn={row.turn} last={row.last} text={row.text} />;
  if (row.type === "unread")
    return (
      <div className={styles.unread}>
        <span>{unread}</span>
      </div>
    );
  const { item } = row;
  switch (item.type) {
    case "said":
      return <Said item={item} />;
    case "answer":
      return <Answer item={item} calls={view.calls} approvals={view.approvals} />;
    case "error":
      return <Trouble item={item} goOn={item.fatal && item.id === view.items.at(-1)?.id && canGoOn(view)} />;
    case "compacted":
      return <Compacted item={item} />;
  }
}

/** A guess at a row's height, until it has been seen: near enough that the bar at the side does not jump. */
function estimate(row: Row | undefined): number {
  if (!row) return 80;
  if (row.type === "turn") return 44;
  if (row.type === "unread") return 40;
  if (row.type === "outgoing") return 70;
  const { item } = row;
  if (item.type === "answer") return 30 + Math.ceil(item.text.length / 80) * 23 + item.calls.length * 50;
  if (item.type === "said") {
    const letters = item.message.content.reduce((sum, part) => sum + (part.type === "text" ? part.text.length : 0), 0);
    return 62 + Math.ceil(letters / 70) * 23;
  }
  return 60;
}

const QUIET: readonly Doing[] = ["nothing", "waiting", "writing", "working"];

/** What the agent is at, below the last row, where no row shows it. */
function Now({ view }: { view: SessionView }) {
  const { t } = useTranslation();
  const what = doing(view);
  const me = useMe().data?.name;
  const boxes = Object.values(view.boxes);
  const holder = boxes.find((box) => box.holder)?.holder;
  const building = what === "starting" ? boxes.find((box) => box.building)?.building : null;
  return (
    // What changes every few seconds is not read aloud each time.
    <div className={styles.now} role="status" aria-live={building ? "off" : "polite"}>
      {building ? (
        <BuildingImage building={building} />
      ) : (
        !QUIET.includes(what) && (
          <span className={styles.shimmer}>
            {t(`chat.doing.${what === "parked" && holder && holder === me ? "parkedByMe" : what}`, {
              who: holder ?? "",
            })}
          </span>
        )
      )}
    </div>
  );
}
