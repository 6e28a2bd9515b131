import { MessageSquareOff } from "lucide-react";
import { Suspense, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import {
  cancelTurn,
  continueTurn,
  decideApprovals,
  discardMessage,
  reconnectSession,
  retryMessage,
  sendMessage,
  useOutbox,
  useSession,
} from "@/session/store";
import { pendingApprovals, type SessionView } from "@/session/types";
import { lazyComponent } from "@/shell/navigation/lazy-component";
import { useServerConnection } from "@/shell/status/server-connection";
import { showErrorToast } from "@/ui/controls/toasts";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { usePageTitle } from "@/ui/layout/Page";
import { EmptyState, ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { SplitPane } from "@/ui/layout/SplitPane";
import { PendingApprovalsBar } from "./approvals/PendingApprovalsBar";
import { ChatHeader } from "./ChatHeader";
import styles from "./ChatsPage.module.css";
import { ChatContext, type ChatContextValue } from "./chat-context";
import { Composer } from "./composer/Composer";
import type { ComposedMessage } from "./composer/composer-runtime";
import { LiveAnnouncer } from "./LiveAnnouncer";
import { forkSession, sessionTitle } from "./list/session-actions";
import { NarrowChatTabs } from "./NarrowChatTabs";
import { AgentPlan } from "./thread/AgentPlan";
import { ChatThread, type ChatThreadHandle } from "./thread/ChatThread";
import { canAgentContinue } from "./thread/thread-rows";
import { usePanelView } from "./usePanelView";

const SandboxPanel = lazyComponent(async () => ({
  default: (await import("@/sandbox-panel/SandboxPanel")).SandboxPanel,
}));

interface Props {
  id: string;
  narrow: boolean;
  mayWrite: boolean;
  onList?: () => void;
}

/** One chat, or the reason why it cannot be shown. */
export function ChatView(props: Props) {
  const { t } = useTranslation();
  const { view, error, caughtUp, link } = useSession(props.id, (state) => state);
  usePageTitle(view.title || t("chat.chat"));
  const resumed = useServerConnection((state) => state.resumed);
  // biome-ignore lint/correctness/useExhaustiveDependencies: signing in again may lift the refusal.
  useEffect(() => {
    if (error) reconnectSession(props.id);
  }, [resumed]);
  if (view.deleted)
    return (
      <EmptyState
        icon={MessageSquareOff}
        title={t("chat.isDeleted")}
        action={<Link href="/chats">{t("chat.newChat")}</Link>}
      />
    );
  if (error) return <ErrorState error={error} retry={() => reconnectSession(props.id)} />;
  if (!caughtUp) return <LoadingBars rows={8} />;
  return <OpenChat {...props} view={view} lost={link === "lost"} />;
}

function OpenChat({ id, narrow, mayWrite, onList, view, lost }: Props & { view: SessionView; lost: boolean }) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const [search] = useSearchParams();
  const [tab, setTab] = useState<"chat" | "sandboxes">("chat");
  const [settings, setSettings] = useState(false);
  const outbox = useOutbox(id);
  const thread = useRef<ChatThreadHandle>(null);
  const panel = usePanelView(view);
  const waiting = useMemo(() => pendingApprovals(view), [view]);
  const { choose } = panel;
  const agent = useMemo(() => ({ session: id }), [id]);

  const keptFilesJson = useMemo(() => JSON.stringify(keptFilesByName(view.calls)), [view.calls]);
  // Calls change with every piece of output; the context value must not.
  const keptFiles = useMemo<Record<string, string>>(() => JSON.parse(keptFilesJson), [keptFilesJson]);

  const chat: ChatContextValue = useMemo(
    () => ({
      session: id,
      several: countAuthors(view.items) > 1,
      kinds: view.kinds,
      sandboxes: view.sandboxes,
      mayWrite,
      decide: async (decisions) => void (await decideApprovals(id, decisions)),
      keptFiles,
      revision: `${view.turn} ${view.state}`,
      show: (sandbox, panelView, path) => {
        choose(sandbox, panelView, path);
        setTab("sandboxes");
      },
      fork: (message) => void forkSession(id, message, go),
      continueTurn: () => void continueTurn(id).catch(showErrorToast),
      openSettings: () => setSettings(true),
      retry: (key) => void retryMessage(id, key),
      discard: (key) => discardMessage(id, key),
    }),
    [id, view.items, view.kinds, view.sandboxes, view.turn, view.state, keptFiles, mayWrite, choose, go],
  );
  const sendAndScrollToEnd = useCallback(
    (composed: ComposedMessage) => {
      void sendMessage(id, composed);
      thread.current?.toEnd();
    },
    [id],
  );
  const stop = useCallback(() => void cancelTurn(id).catch(showErrorToast), [id]);
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
      <ChatThread ref={thread} session={id} view={view} outbox={outbox} initialItem={message} />
      <div className={styles.below}>
        <PendingApprovalsBar waiting={waiting} onShow={(approval) => thread.current?.show(approval.call_id)} />
        <AgentPlan steps={view.plan} state={view.state} />
        {mayWrite ? (
          <Composer
            draft={id}
            view={view}
            placeholder={view.items.length ? t("chat.reply") : t("chat.askAnything")}
            onSend={sendAndScrollToEnd}
            onStop={stop}
            onContinue={canAgentContinue(view) ? chat.continueTurn : undefined}
          />
        ) : (
          <p className={styles.readOnly}>{t("chat.readOnly")}</p>
        )}
      </div>
    </div>
  );
  const sandboxPanel = (
    <section
      className={styles.sandboxes}
      aria-label={t("chat.sandboxes")}
      onPointerDownCapture={panel.markUsed}
      onKeyDownCapture={panel.markUsed}
      onFocusCapture={panel.returnFocus}
    >
      <Suspense fallback={<LoadingBars />}>
        <SandboxPanel sandboxes={panel.sandboxes} chosen={panel.chosen} onChoose={choose} agent={agent} />
      </Suspense>
    </section>
  );
  const hasSandboxes = panel.sandboxes.length > 0;
  const { unseenActivity } = panel;
  const showAgentActivity =
    unseenActivity && view.state === "running" ? () => choose(unseenActivity.sandbox, unseenActivity.view) : null;
  const header = (
    <ChatHeader
      id={id}
      view={view}
      mayWrite={mayWrite}
      onList={onList}
      settings={settings}
      onSettings={setSettings}
      panel={hasSandboxes && !narrow ? { shown: panel.shown, toggle: panel.toggle, follow: showAgentActivity } : null}
    />
  );
  return (
    <ChatContext value={chat}>
      <div className={styles.open}>
        {header}
        <div className={styles.body}>
          {narrow ? (
            <NarrowChatTabs
              label={sessionTitle(view)}
              tab={tab}
              onChange={(next) => {
                setTab(next);
                if (next === "sandboxes" && panel.unseenActivity)
                  choose(panel.unseenActivity.sandbox, panel.unseenActivity.view);
              }}
              chat={column}
              sandboxes={hasSandboxes ? sandboxPanel : null}
              unseen={{ chat: waiting.length > 0, sandboxes: panel.unseenActivity !== null }}
            />
          ) : (
            // The chat keeps its place in the page when the panel opens or closes, so that typing is not interrupted.
            <SplitPane name="chat" left={column} right={hasSandboxes && panel.shown ? sandboxPanel : null} share={44} />
          )}
        </div>
      </div>
      <LiveAnnouncer view={view} waiting={waiting.length} />
    </ChatContext>
  );
}

/** Files that calls saved in the chat; the newest of each name. */
function keptFilesByName(calls: SessionView["calls"]): Record<string, string> {
  const found: Record<string, string> = Object.create(null);
  for (const call of Object.values(calls))
    for (const part of call.result?.content ?? []) if (part.type !== "text" && part.name) found[part.name] = part.file;
  return found;
}

function countAuthors(items: SessionView["items"]): number {
  const names = new Set<string>();
  for (const item of items)
    if (item.type === "message" && item.message.role === "user") names.add(item.message.by ?? "");
  return names.size;
}
