import { Ban, RotateCcw, TriangleAlert } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import {
  ProgramOutput,
  ToolCallCard,
  TranscriptText,
  TranscriptThought,
  TranscriptTurn,
} from "@/ui/content/Transcript";
import { Button } from "@/ui/controls/Button";
import { RelativeTime } from "@/ui/format/formats";
import { EmptyState, ErrorState, LoadingBars } from "@/ui/layout/query-states";
import styles from "./run.module.css";
import type { RunFeedItem } from "./run-feed";
import { useRetryReason, useTranslatedReason } from "./run-reason";
import type { RunFeedState } from "./useRunFeed";

/** Items rendered at first; earlier ones on demand. */
const INITIAL_ITEMS = 300;

/** The agent's messages and actions, newest last. Sticks to the end while the end is in view. */
export function AgentActivity({ feed, link, error }: RunFeedState) {
  const { t } = useTranslation();
  const [shown, setShown] = useState(INITIAL_ITEMS);
  const end = useRef<HTMLDivElement>(null);
  const atEnd = useRef(false);
  const { items } = feed;
  const groups = groupFeedItems(items.slice(-shown));

  useEffect(() => {
    const mark = end.current;
    if (!mark) return;
    const observer = new IntersectionObserver(([entry]) => {
      atEnd.current = entry?.isIntersecting ?? false;
    });
    observer.observe(mark);
    return () => observer.disconnect();
  }, []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: scroll when content is added.
  useEffect(() => {
    if (atEnd.current && !feed.ended) end.current?.scrollIntoView({ block: "end" });
  }, [feed.last]);

  return (
    <section className={styles.feed} aria-label={t("runs.tab.activity")} aria-busy={link === "connecting"}>
      {error && <ErrorState error={error} />}
      {items.length > shown && (
        <Button size="small" onClick={() => setShown(shown + 1000)}>
          {t("runs.earlier", { count: items.length - shown })}
        </Button>
      )}
      {groups.map((group) =>
        group.agent ? (
          <TranscriptTurn
            key={group.id}
            by="assistant"
            scripted={group.scripted}
            metadata={<RelativeTime at={group.at} />}
          >
            {group.items.map((item) => (
              <FeedItemView key={item.id} item={item} ended={feed.ended} />
            ))}
          </TranscriptTurn>
        ) : (
          group.items.map((item) => <FeedItemView key={item.id} item={item} ended={feed.ended} />)
        ),
      )}
      {items.length === 0 &&
        !error &&
        (feed.ended ? (
          feed.stages.some(({ stage }) => stage === "watch") ? (
            <EmptyState title={t("runs.silent")}>{t("runs.silentHint")}</EmptyState>
          ) : (
            <EmptyState title={t("runs.notStarted")}>{t("runs.notStartedHint")}</EmptyState>
          )
        ) : link === "connecting" && feed.last === 0 ? (
          <LoadingBars />
        ) : (
          <EmptyState title={t("runs.nothingYet")}>{t("runs.nothingYetHint")}</EmptyState>
        ))}
      {link === "lost" && <p className={styles.lost}>{t("runs.lost")}</p>}
      <div ref={end} />
    </section>
  );
}

interface ActivityGroup {
  id: number;
  at: string;
  /** Whether the group belongs to the agent. */
  agent: boolean;
  scripted: boolean;
  items: RunFeedItem[];
}

/** A message of the agent starts a group; its thoughts and calls belong to it. */
function groupFeedItems(items: RunFeedItem[]): ActivityGroup[] {
  const groups: ActivityGroup[] = [];
  for (const item of items) {
    const agent = item.type === "text" || item.type === "thinking" || item.type === "call";
    const last = groups.at(-1);
    const before = last?.items.at(-1)?.type;
    const startsGroup = item.type === "thinking" || (item.type === "text" && before !== "thinking");
    if (last?.agent && agent && !startsGroup) last.items.push(item);
    else {
      const scripted = (item.type === "text" || item.type === "thinking") && item.scripted;
      const isScriptedCall = item.type === "call" && item.call.scripted;
      groups.push({ id: item.id, at: item.at, agent, scripted: scripted || isScriptedCall, items: [item] });
    }
  }
  return groups;
}

function FeedItemView({ item, ended }: { item: RunFeedItem; ended: boolean }) {
  const { t } = useTranslation();
  const translateReason = useTranslatedReason();
  const retryReason = useRetryReason();
  switch (item.type) {
    case "text":
      return <TranscriptText text={item.text} />;
    case "thinking":
      return <TranscriptThought text={item.text} />;
    case "call":
      return (
        <ToolCallCard
          name={item.call.name}
          args={item.call.args}
          failed={item.call.failed}
          running={item.call.result === null && !ended}
          result={
            item.call.result === null ? undefined : <ProgramOutput text={item.call.result} failed={item.call.failed} />
          }
        />
      );
    case "output":
      return (
        <div className={styles.written}>
          <span className={styles.stream}>{t(`runs.stream.${item.stream === "stderr" ? "stderr" : "stdout"}`)}</span>
          <ProgramOutput text={item.text} failed={item.stream === "stderr"} growing={!ended} />
        </div>
      );
    case "error":
      return (
        <p className={styles.problem} role="alert">
          <TriangleAlert size={16} aria-hidden /> {item.text}
        </p>
      );
    case "attempt":
      return (
        <p className={styles.note}>
          <RotateCcw size={16} aria-hidden />{" "}
          {t("runs.again", { attempt: item.attempt, reason: retryReason(item.cause) })}
        </p>
      );
    case "cancelling":
      return (
        <p className={styles.note}>
          <Ban size={16} aria-hidden /> {t("runs.cancelAsked", { reason: translateReason(item.reason) })}
        </p>
      );
  }
}
