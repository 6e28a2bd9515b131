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
import { ImageBuildProgress } from "@/sandbox-panel/ImageBuildProgress";
import type { OutgoingMessage } from "@/session/store";
import type { SessionView } from "@/session/types";
import { useCurrentUser } from "@/shell/account/current-user";
import { readStoredValue, writeStoredValue } from "@/ui/hooks/browser-storage";
import { AnswerMessage } from "./AnswerMessage";
import { CompactionNotice, TurnErrorNotice, TurnFooter } from "./TurnFooter";
import styles from "./thread.module.css";
import {
  type AgentStatus,
  agentStatus,
  buildThreadRows,
  canAgentContinue,
  countItemsAfter,
  type ThreadRow,
} from "./thread-rows";
import { OutgoingUserMessage, UserMessage } from "./UserMessage";
import { useStickToEnd } from "./useStickToEnd";

export interface ChatThreadHandle {
  /** Scroll an item or call into view. */
  show: (id: string) => void;
  toEnd: () => void;
}

interface Props {
  session: string;
  view: SessionView;
  outbox: readonly OutgoingMessage[];
  /** Id of the message to show first instead of the end. */
  initialItem?: string | null;
  ref?: Ref<ChatThreadHandle>;
}

/** Virtualized list of messages: only visible rows are in the page. */
export function ChatThread({ session, view, outbox, initialItem, ref }: Props) {
  const { t } = useTranslation();
  const frame = useRef<HTMLElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  // Items that arrive while the chat is in view are not marked as new.
  const [readUntil] = useState(() => {
    const read = readStoredValue<string | null>(`chat.read.${session}`, null);
    return read === view.items.at(-1)?.id ? null : read;
  });
  const rows = useMemo(
    () => buildThreadRows({ items: view.items, turns: view.turns, outbox, readUntil }),
    [view.items, view.turns, outbox, readUntil],
  );
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => frame.current,
    getItemKey: (index) => rows[index]?.id ?? index,
    estimateSize: (index) => estimateRowHeight(rows[index]),
    overscan: 6,
    paddingStart: 16,
    anchorTo: "end",
  });
  const jump = useCallback(() => {
    const element = frame.current;
    if (element) element.scrollTop = element.scrollHeight;
  }, []);
  const { atEnd, stick, release } = useStickToEnd(frame, inner, jump);
  const [leftEndAt, setLeftEndAt] = useState<string | null>(null);
  const last = view.items.at(-1)?.id ?? null;
  useEffect(() => {
    if (!atEnd) setLeftEndAt((before) => before ?? last);
    else setLeftEndAt(null);
  }, [atEnd, last]);

  // Items shown on a visible page count as read.
  useEffect(() => {
    if (!last) return;
    const read = () =>
      atEnd && document.visibilityState === "visible" && writeStoredValue(`chat.read.${session}`, last);
    read();
    document.addEventListener("visibilitychange", read);
    return () => document.removeEventListener("visibilitychange", read);
  }, [atEnd, last, session]);

  const show = useCallback(
    (anchor: string) => {
      // Tool results are messages too, but are shown in the card of their call.
      const id = anchor.replace(/^result_/, "");
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

  // Start at the end, or at the item in the URL; rows get their measured heights meanwhile.
  const scrolledInitially = useRef(false);
  useEffect(() => {
    if (scrolledInitially.current || !rows.length) return;
    scrolledInitially.current = true;
    if (initialItem) show(initialItem);
    else stick();
  }, [rows.length, initialItem, show, stick]);

  const newItems = countItemsAfter(view.items, leftEndAt);
  return (
    <div className={styles.frame}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas must be reachable by keyboard. */}
      <section ref={frame} className={styles.scroll} aria-label={t("chat.thread")} tabIndex={0}>
        <div ref={inner} className={styles.rows} style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((virtualRow) => {
            const row = rows[virtualRow.index];
            return (
              row && (
                <div
                  key={virtualRow.key}
                  ref={virtual.measureElement}
                  data-index={virtualRow.index}
                  data-row={row.type}
                  className={styles.row}
                  style={{ transform: `translateY(${virtualRow.start}px)` }}
                >
                  <div className={styles.column}>{renderRow(row, view, t("chat.unread"))}</div>
                </div>
              )
            );
          })}
        </div>
        <AgentStatusLine view={view} />
      </section>
      {!atEnd && (
        <button type="button" className={styles.jump} onClick={stick}>
          <ArrowDown size={15} aria-hidden />
          {newItems > 0 ? t("chat.jumpNew", { count: newItems }) : t("chat.jump")}
        </button>
      )}
    </div>
  );
}

function renderRow(row: ThreadRow, view: SessionView, unread: string): ReactNode {
  if (row.type === "outgoing") return <OutgoingUserMessage outgoing={row.outgoing} />;
  if (row.type === "turn") return <TurnFooter turn={row.turn} last={row.last} text={row.text} />;
  if (row.type === "unread")
    return (
      <div className={styles.unread}>
        <span>{unread}</span>
      </div>
    );
  const { item } = row;
  switch (item.type) {
    case "message":
      return <UserMessage item={item} />;
    case "answer":
      return <AnswerMessage item={item} calls={view.calls} approvals={view.approvals} />;
    case "error":
      return (
        <TurnErrorNotice
          item={item}
          canContinue={item.fatal && item.id === view.items.at(-1)?.id && canAgentContinue(view)}
        />
      );
    case "compacted":
      return <CompactionNotice item={item} />;
  }
}

/** Estimated row height until it is measured, close enough that the scroll bar does not jump. */
function estimateRowHeight(row: ThreadRow | undefined): number {
  if (!row) return 80;
  if (row.type === "turn") return 44;
  if (row.type === "unread") return 40;
  if (row.type === "outgoing") return 70;
  const { item } = row;
  if (item.type === "answer") return 30 + Math.ceil(item.text.length / 80) * 23 + item.calls.length * 50;
  if (item.type === "message") {
    const characters = item.message.content.reduce(
      (sum, part) => sum + (part.type === "text" ? part.text.length : 0),
      0,
    );
    return 62 + Math.ceil(characters / 70) * 23;
  }
  return 60;
}

const QUIET_STATES: readonly AgentStatus[] = ["nothing", "waiting", "writing", "working"];

/** The agent's status below the last row, when no row shows it. */
function AgentStatusLine({ view }: { view: SessionView }) {
  const { t } = useTranslation();
  const status = agentStatus(view);
  const me = useCurrentUser().data?.name;
  const sandboxes = Object.values(view.sandboxes);
  const holder = sandboxes.find((sandbox) => sandbox.holder)?.holder;
  const building = status === "starting" ? sandboxes.find((sandbox) => sandbox.building)?.building : null;
  return (
    // Text that changes every few seconds is not announced each time.
    <div className={styles.now} role="status" aria-live={building ? "off" : "polite"}>
      {building ? (
        <ImageBuildProgress building={building} />
      ) : (
        !QUIET_STATES.includes(status) && (
          <span className={styles.shimmer}>
            {t(`chat.doing.${status === "parked" && holder && holder === me ? "parkedByMe" : status}`, {
              who: holder ?? "",
            })}
          </span>
        )
      )}
    </div>
  );
}
