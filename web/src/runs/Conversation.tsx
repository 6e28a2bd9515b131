import { Ban, RotateCcw, TriangleAlert } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/Button";
import { Empty, Failed, Loading } from "@/ui/states";
import { Time } from "@/ui/Time";
import { CallCard, Output, Said, Thought, Words } from "@/ui/Transcript";
import type { FeedItem } from "./feed";
import styles from "./run.module.css";
import type { FeedLink } from "./useFeed";
import { useReason } from "./why";

/** Items that are drawn at first; earlier ones come when they are asked for. */
const SHOWN = 300;

/** What the agent says and does, the newest last. It stays at the end while its end is in view. */
export function Conversation({ feed, link, error }: FeedLink) {
  const { t } = useTranslation();
  const [shown, setShown] = useState(SHOWN);
  const end = useRef<HTMLDivElement>(null);
  const atEnd = useRef(false);
  const { items } = feed;
  const groups = grouped(items.slice(-shown));

  useEffect(() => {
    const mark = end.current;
    if (!mark) return;
    const watch = new IntersectionObserver(([entry]) => {
      atEnd.current = entry?.isIntersecting ?? false;
    });
    watch.observe(mark);
    return () => watch.disconnect();
  }, []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: whenever there is more to see.
  useEffect(() => {
    if (atEnd.current && !feed.ended) end.current?.scrollIntoView({ block: "end" });
  }, [feed.last]);

  return (
    <section className={styles.feed} aria-label={t("runs.tab.activity")} aria-busy={link === "connecting"}>
      {error && <Failed error={error} />}
      {items.length > shown && (
        <Button size="small" onClick={() => setShown(shown + 1000)}>
          {t("runs.earlier", { count: items.length - shown })}
        </Button>
      )}
      {groups.map((group) =>
        group.agent ? (
          <Said key={group.id} by="assistant" scripted={group.scripted} aside={<Time at={group.at} />}>
            {group.items.map((item) => (
              <Item key={item.id} item={item} ended={feed.ended} />
            ))}
          </Said>
        ) : (
          group.items.map((item) => <Item key={item.id} item={item} ended={feed.ended} />)
        ),
      )}
      {items.length === 0 &&
        !error &&
        (feed.ended ? (
          feed.stages.some(({ stage }) => stage === "watch") ? (
            <Empty title={t("runs.silent")}>{t("runs.silentHint")}</Empty>
          ) : (
            <Empty title={t("runs.notStarted")}>{t("runs.notStartedHint")}</Empty>
          )
        ) : link === "connecting" && feed.last === 0 ? (
          <Loading />
        ) : (
          <Empty title={t("runs.nothingYet")}>{t("runs.nothingYetHint")}</Empty>
        ))}
      {link === "lost" && <p className={styles.lost}>{t("runs.lost")}</p>}
      <div ref={end} />
    </section>
  );
}

interface Group {
  id: number;
  at: string;
  /** Whether the agent said or did what is in it. */
  agent: boolean;
  scripted: boolean;
  items: FeedItem[];
}

/** What an agent says begins a group; thoughts and calls around it belong to it. */
function grouped(items: FeedItem[]): Group[] {
  const groups: Group[] = [];
  for (const item of items) {
    const agent = item.type === "text" || item.type === "thinking" || item.type === "call";
    const last = groups.at(-1);
    const before = last?.items.at(-1)?.type;
    const begins = item.type === "thinking" || (item.type === "text" && before !== "thinking");
    if (last?.agent && agent && !begins) last.items.push(item);
    else {
      const scripted = (item.type === "text" || item.type === "thinking") && item.scripted;
      const called = item.type === "call" && item.call.scripted;
      groups.push({ id: item.id, at: item.at, agent, scripted: scripted || called, items: [item] });
    }
  }
  return groups;
}

function Item({ item, ended }: { item: FeedItem; ended: boolean }) {
  const { t } = useTranslation();
  const inWords = useReason();
  switch (item.type) {
    case "text":
      return <Words text={item.text} />;
    case "thinking":
      return <Thought text={item.text} />;
    case "call":
      return (
        <CallCard
          name={item.call.name}
          args={item.call.args}
          failed={item.call.failed}
          running={item.call.result === null && !ended}
          result={item.call.result === null ? undefined : <Output text={item.call.result} failed={item.call.failed} />}
        />
      );
    case "output":
      return (
        <div className={styles.written}>
          <span className={styles.stream}>{t(`runs.stream.${item.stream === "stderr" ? "stderr" : "stdout"}`)}</span>
          <Output text={item.text} failed={item.stream === "stderr"} growing={!ended} />
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
          <RotateCcw size={16} aria-hidden /> {t("runs.again", { attempt: item.attempt, reason: inWords(item.reason) })}
        </p>
      );
    case "cancelling":
      return (
        <p className={styles.note}>
          <Ban size={16} aria-hidden /> {t("runs.cancelAsked", { reason: inWords(item.reason) })}
        </p>
      );
  }
}
