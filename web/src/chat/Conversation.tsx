import { MessageSquareOff } from "lucide-react";
import { Suspense, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { cancel, decide, discard, goOn, reconnect, retry, send, useOutbox, useSession } from "@/session/store";
import { pending, type SessionView } from "@/session/types";
import { useConnection } from "@/shell/connection";
import { part } from "@/shell/parts";
import { useTitle } from "@/ui/Page";
import { Split } from "@/ui/Split";
import { useSearchParams } from "@/ui/search";
import { Empty, Failed, Loading } from "@/ui/states";
import { toastError } from "@/ui/toasts";
import { Announcer } from "./Announcer";
import { StickyBar } from "./approvals/StickyBar";
import styles from "./Chats.module.css";
import { Composer } from "./composer/Composer";
import type { Written } from "./composer/runtime";
import { type Chat, ChatContext } from "./context";
import { useFollowing } from "./following";
import { Header } from "./Header";
import { forkSession, titleOf } from "./list/actions";
import { NarrowTabs } from "./NarrowTabs";
import { Plan } from "./thread/Plan";
import { canGoOn } from "./thread/rows";
import { Thread, type ThreadHandle } from "./thread/Thread";

const Computers = part(async () => ({ default: (await import("@/computers/Computers")).Computers }));

interface Props {
  id: string;
  narrow: boolean;
  mayWrite: boolean;
  onList?: () => void;
}

/** One chat, as far as it can be shown. */
export function Conversation(props: Props) {
  const { t } = useTranslation();
  const { view, error, caughtUp, link } = useSession(props.id, (state) => state);
  useTitle(view.title || t("chat.chat"));
  const resumed = useConnection((state) => state.resumed);
  // biome-ignore lint/correctness/useExhaustiveDependencies: who has signed in again may be told now what was refused.
  useEffect(() => {
    if (error) reconnect(props.id);
  }, [resumed]);
  if (view.deleted)
    return (
      <Empty
        icon={MessageSquareOff}
        title={t("chat.isDeleted")}
        action={<Link href="/chats">{t("chat.newChat")}</Link>}
      />
    );
  if (error) return <Failed error={error} retry={() => reconnect(props.id)} />;
  if (!caughtUp) return <Loading rows={8} />;
  return <Open {...props} view={view} lost={link === "lost"} />;
}

function Open({ id, narrow, mayWrite, onList, view, lost }: Props & { view: SessionView; lost: boolean }) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const [search] = useSearchParams();
  const [tab, setTab] = useState<"chat" | "computers">("chat");
  const [settings, setSettings] = useState(false);
  const outbox = useOutbox(id);
  const thread = useRef<ThreadHandle>(null);
  const panel = useFollowing(view);
  const waiting = useMemo(() => pending(view), [view]);
  const { choose } = panel;

  const keptNow = useMemo(() => JSON.stringify(keptFiles(view.calls)), [view.calls]);
  // Calls change with each piece of their output, and what a thread is given should not.
  const kept = useMemo<Record<string, string>>(() => JSON.parse(keptNow), [keptNow]);

  const chat: Chat = useMemo(
    () => ({
      session: id,
      several: namesIn(view.items) > 1,
      kinds: view.kinds,
      boxes: view.boxes,
      mayWrite,
      decide: async (decisions) => void (await decide(id, decisions)),
      kept,
      revision: `${view.turn} ${view.state}`,
      show: (sandbox, wanted, path) => {
        choose(sandbox, wanted, path);
        setTab("computers");
      },
      fork: (message) => void forkSession(id, message, go),
      goOn: () => void goOn(id).catch(toastError),
      openSettings: () => setSettings(true),
      retry: (key) => void retry(id, key),
      discard: (key) => discard(id, key),
    }),
    [id, view.items, view.kinds, view.boxes, view.turn, view.state, kept, mayWrite, choose, go],
  );
  const say = useCallback(
    (written: Written) => {
      void send(id, written);
      thread.current?.toEnd();
    },
    [id],
  );
  const stop = useCallback(() => void cancel(id).catch(toastError), [id]);
  const message = search.get("message");
  useEffect(() => {
    if (message) thread.current?.show(message);
  }, [message]);

  const column = (
    <div className={styles.column}>
      {lost && (
        <p className={styles.lost} role="status">
          {t("chat.lost")}
        </p>
      )}
      <Thread ref={thread} session={id} view={view} outbox={outbox} begin={message} />
      <div className={styles.below}>
        <StickyBar waiting={waiting} onShow={(approval) => thread.current?.show(approval.call_id)} />
        <Plan steps={view.plan} state={view.state} />
        {mayWrite ? (
          <Composer
            draft={id}
            view={view}
            placeholder={view.items.length ? t("chat.reply") : t("chat.askAnything")}
            onSend={say}
            onStop={stop}
            onGoOn={canGoOn(view) ? chat.goOn : undefined}
          />
        ) : (
          <p className={styles.readOnly}>{t("chat.readOnly")}</p>
        )}
      </div>
    </div>
  );
  const computers = (
    <section
      className={styles.computers}
      aria-label={t("chat.computers")}
      onPointerDownCapture={panel.used}
      onKeyDownCapture={panel.used}
      onFocusCapture={panel.focused}
    >
      <Suspense fallback={<Loading />}>
        <Computers boxes={panel.boxes} chosen={panel.chosen} onChoose={choose} session={id} />
      </Suspense>
    </section>
  );
  const some = panel.boxes.length > 0;
  const { news } = panel;
  const seeAgent = news && view.state === "running" ? () => choose(news.sandbox, news.view) : null;
  const header = (
    <Header
      id={id}
      view={view}
      mayWrite={mayWrite}
      onList={onList}
      settings={settings}
      onSettings={setSettings}
      panel={some && !narrow ? { shown: panel.shown, toggle: panel.toggle, follow: seeAgent } : null}
    />
  );
  return (
    <ChatContext value={chat}>
      <div className={styles.open}>
        {header}
        <div className={styles.body}>
          {narrow ? (
            <NarrowTabs
              label={titleOf(view)}
              tab={tab}
              onChange={(next) => {
                setTab(next);
                if (next === "computers" && panel.news) choose(panel.news.sandbox, panel.news.view);
              }}
              chat={column}
              computers={some ? computers : null}
              news={{ chat: waiting.length > 0, computers: panel.news !== null }}
            />
          ) : (
            // The thread keeps its place in the page when computers come and go, so that nobody is interrupted in writing.
            <Split name="chat" left={column} right={some && panel.shown ? computers : null} share={44} />
          )}
        </div>
      </div>
      <Announcer view={view} waiting={waiting.length} />
    </ChatContext>
  );
}

/** Files that calls have given to the chat; of one name the newest. */
function keptFiles(calls: SessionView["calls"]): Record<string, string> {
  const found: Record<string, string> = Object.create(null);
  for (const call of Object.values(calls))
    for (const part of call.result?.content ?? []) if (part.type !== "text" && part.name) found[part.name] = part.file;
  return found;
}

function namesIn(items: SessionView["items"]): number {
  const names = new Set<string>();
  for (const item of items) if (item.type === "said" && item.message.role === "user") names.add(item.message.by ?? "");
  return names.size;
}
