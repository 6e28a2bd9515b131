import { PanelLeftOpen } from "lucide-react";
import { Suspense, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation, useParams } from "wouter";
import { begin, send, useSessions } from "@/session/store";
import { may, useMe } from "@/shell/me";
import { part } from "@/shell/parts";
import { IconButton } from "@/ui/Button";
import { useTitle } from "@/ui/Page";
import { useRemembered } from "@/ui/remember";
import { Empty, Failed, Loading } from "@/ui/states";
import styles from "./Chats.module.css";
import { SessionList } from "./list/SessionList";
import { NewChat } from "./start/NewChat";
import { bodyOf } from "./start/setup";

const Drawer = part(async () => ({ default: (await import("./list/Drawer")).Drawer }));
// Who begins a chat needs none of what shows one.
const Conversation = part(async () => ({ default: (await import("./Conversation")).Conversation }));

const NARROW = "(max-width: 899px)";

/** Chats with agents: a list of them, and one of them with its computers. */
export default function Chats() {
  const { t } = useTranslation();
  const { id } = useParams<{ id?: string }>();
  const [, go] = useLocation();
  const narrow = useMedia(NARROW);
  const [listed, setListed] = useRemembered("chat.list", true);
  const [drawer, setDrawer] = useState(false);
  const me = useMe();
  const mayWrite = me.data ? may(me.data, "sessions:write") : true;
  const onList = narrow ? () => setDrawer(true) : listed ? undefined : () => setListed(true);

  // biome-ignore lint/correctness/useExhaustiveDependencies: whoever has gone somewhere is done with the list.
  useEffect(() => setDrawer(false), [id]);

  if (me.data && !may(me.data, "sessions:read")) return <Refused />;
  return (
    <div className={styles.page}>
      {!narrow && listed && (
        <div className={styles.side}>
          <SessionList current={id} mayWrite={mayWrite} onFold={() => setListed(false)} />
        </div>
      )}
      {narrow && (
        <Suspense fallback={null}>
          <Drawer open={drawer} onOpenChange={setDrawer}>
            <SessionList current={id} mayWrite={mayWrite} onFold={() => setDrawer(false)} />
          </Drawer>
        </Suspense>
      )}
      <div className={styles.main}>
        {id ? (
          <Suspense fallback={<Loading rows={8} />}>
            <Conversation key={id} id={id} narrow={narrow} mayWrite={mayWrite} onList={onList} />
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
                onStart={async (setup, written) => {
                  const made = await begin(bodyOf(setup));
                  go(`/chats/${made.id}`);
                  void send(made.id, written);
                }}
              />
            ) : (
              <Empty title={t("chat.onlyReads")} />
            )}
          </>
        )}
      </div>
    </div>
  );
}

/** Why there is nothing to see, in the server's words. */
function Refused() {
  const { t } = useTranslation();
  const { error } = useSessions();
  useTitle(t("chat.chats"));
  return error ? <Failed error={error} /> : <Loading />;
}

function useMedia(query: string): boolean {
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
