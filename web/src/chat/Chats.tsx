import { Dialog } from "@base-ui/react/dialog";
import { PanelLeftOpen } from "lucide-react";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation, useParams } from "wouter";
import { begin, send } from "@/session/store";
import { may, useMe } from "@/shell/me";
import { IconButton } from "@/ui/Button";
import { useRemembered } from "@/ui/remember";
import styles from "./Chats.module.css";
import { Conversation } from "./Conversation";
import { SessionList } from "./list/SessionList";
import { NewChat } from "./start/NewChat";
import { bodyOf } from "./start/setup";

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

  return (
    <div className={styles.page}>
      {!narrow && listed && (
        <div className={styles.side}>
          <SessionList current={id} mayWrite={mayWrite} onFold={() => setListed(false)} />
        </div>
      )}
      {narrow && (
        <Dialog.Root open={drawer} onOpenChange={setDrawer}>
          <Dialog.Portal>
            <Dialog.Backdrop className={styles.backdrop} />
            <Dialog.Popup className={styles.drawer} aria-label={t("chat.chats")}>
              <SessionList current={id} mayWrite={mayWrite} onFold={() => setDrawer(false)} />
            </Dialog.Popup>
          </Dialog.Portal>
        </Dialog.Root>
      )}
      <div className={styles.main}>
        {id ? (
          <Conversation key={id} id={id} narrow={narrow} mayWrite={mayWrite} onList={onList} />
        ) : (
          <>
            {onList && (
              <div className={styles.bare}>
                <IconButton icon={PanelLeftOpen} label={t("chat.openList")} onClick={onList} />
              </div>
            )}
            <NewChat
              onStart={async (setup, written) => {
                const made = await begin(bodyOf(setup));
                go(`/chats/${made.id}`);
                void send(made.id, written);
              }}
            />
          </>
        )}
      </div>
    </div>
  );
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
