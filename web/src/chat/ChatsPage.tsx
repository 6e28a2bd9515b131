import { PanelLeftOpen } from "lucide-react";
import { Suspense, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation, useParams } from "wouter";
import { loadAllTexts } from "@/i18n";
import { sendMessage, startSession, useSessions } from "@/session/store";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { lazyComponent } from "@/shell/navigation/lazy-component";
import { IconButton } from "@/ui/controls/Button";
import { useStoredState } from "@/ui/hooks/browser-storage";
import { usePageTitle } from "@/ui/layout/Page";
import { EmptyState, ErrorState, LoadingBars } from "@/ui/layout/query-states";
import styles from "./ChatsPage.module.css";
import { SessionList } from "./list/SessionList";
import { useChatShortcuts } from "./list/useChatShortcuts";
import { startSessionRequestBody } from "./start/chat-setup";
import { NewChat } from "./start/NewChat";

const ChatListDrawer = lazyComponent(async () => ({ default: (await import("./list/ChatListDrawer")).ChatListDrawer }));
// A new chat needs none of the code and texts that show one.
const ChatView = lazyComponent(async () => {
  const [{ ChatView: loaded }] = await Promise.all([import("./ChatView"), loadAllTexts()]);
  return { default: loaded };
});

const NARROW_QUERY = "(max-width: 899px)";

/** Chat list beside the open chat and its sandbox panel. */
export default function ChatsPage() {
  const { t } = useTranslation();
  const { id } = useParams<{ id?: string }>();
  const [, go] = useLocation();
  const narrow = useMediaQuery(NARROW_QUERY);
  const [isListShown, setIsListShown] = useStoredState("chat.list", true);
  const [drawer, setDrawer] = useState(false);
  const me = useCurrentUser();
  const mayWrite = me.data ? hasScope(me.data, "sessions:write") : true;
  const onList = narrow ? () => setDrawer(true) : isListShown ? undefined : () => setIsListShown(true);

  // biome-ignore lint/correctness/useExhaustiveDependencies: navigating away closes the list.
  useEffect(() => setDrawer(false), [id]);

  if (me.data && !hasScope(me.data, "sessions:read")) return <ChatsUnavailable />;
  return (
    <div className={styles.page}>
      <ChatShortcuts current={id} />
      {!narrow && isListShown && (
        <div className={styles.side}>
          <SessionList current={id} mayWrite={mayWrite} onFold={() => setIsListShown(false)} />
        </div>
      )}
      {narrow && (
        <Suspense fallback={null}>
          <ChatListDrawer open={drawer} onOpenChange={setDrawer}>
            <SessionList current={id} mayWrite={mayWrite} onFold={() => setDrawer(false)} />
          </ChatListDrawer>
        </Suspense>
      )}
      <div className={styles.main}>
        {id ? (
          <Suspense fallback={<LoadingBars rows={8} />}>
            <ChatView key={id} id={id} narrow={narrow} mayWrite={mayWrite} onList={onList} />
          </Suspense>
        ) : (
          <>
            {onList && (
              <div className={styles.bare}>
                <IconButton icon={PanelLeftOpen} label={t("chat.openList")} onClick={onList} />
              </div>
            )}
            {mayWrite ? (
              <NewChat
                onStart={async (setup, composed) => {
                  const session = await startSession(await startSessionRequestBody(setup));
                  go(`/chats/${session.id}`);
                  void sendMessage(session.id, composed);
                }}
              />
            ) : (
              <EmptyState title={t("chat.onlyReads")} />
            )}
          </>
        )}
      </div>
    </div>
  );
}

function ChatShortcuts({ current }: { current: string | undefined }) {
  useChatShortcuts(current);
  return null;
}

/** Why chats cannot be shown, from the server's error. */
function ChatsUnavailable() {
  const { t } = useTranslation();
  const { error } = useSessions();
  usePageTitle(t("chat.chats"));
  return error ? <ErrorState error={error} /> : <LoadingBars />;
}

function useMediaQuery(query: string): boolean {
  const [matches, setMatches] = useState(() => window.matchMedia(query).matches);
  useEffect(() => {
    const media = window.matchMedia(query);
    const changed = () => setMatches(media.matches);
    changed();
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, [query]);
  return matches;
}
