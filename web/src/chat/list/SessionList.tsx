import { Ellipsis, FileUp, MessagesSquare, PanelLeftClose, SquarePen } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { useSessionSearch, useSessions } from "@/session/store";
import { Button, IconButton } from "@/ui/Button";
import { SearchBox } from "@/ui/forms";
import { Menu } from "@/ui/Menu";
import { useSearchParams } from "@/ui/search";
import { Empty, Failed, Loading } from "@/ui/states";
import { Time } from "@/ui/Time";
import { importSession, titleOf, useHidden } from "./actions";
import styles from "./list.module.css";
import { SessionRow } from "./SessionRow";

interface Props {
  current: string | undefined;
  mayWrite: boolean;
  onFold?: () => void;
}

const PAUSE = 500;

/** All chats, the newest first, and a search in what was said in them. */
export function SessionList({ current, mayWrite, onFold }: Props) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const [search, setSearch] = useSearchParams();
  const [words, setWords] = useState(search.get("q") ?? "");
  const [settled, setSettled] = useState(words);
  const bundle = useRef<HTMLInputElement>(null);

  // A pause counts as Enter; the address then names what is looked for.
  useEffect(() => {
    const timer = setTimeout(() => setSettled(words), PAUSE);
    return () => clearTimeout(timer);
  }, [words]);
  const inAddress = search.get("q") ?? "";
  useEffect(() => {
    if (settled === inAddress) return;
    setSearch(
      (before) => {
        if (settled) before.set("q", settled);
        else before.delete("q");
        return before;
      },
      { replace: true },
    );
  }, [settled, inAddress, setSearch]);

  return (
    <nav className={styles.list} aria-label={t("chat.chats")}>
      <div className={styles.head}>
        <h2>{t("chat.chats")}</h2>
        <span>
          {mayWrite && (
            <IconButton size="small" icon={SquarePen} label={t("chat.newChat")} onClick={() => go("/chats")} />
          )}
          <Menu
            trigger={<IconButton size="small" icon={Ellipsis} label={t("common.more")} />}
            items={[
              {
                label: t("chat.import"),
                icon: FileUp,
                disabled: !mayWrite,
                onSelect: () => bundle.current?.click(),
              },
            ]}
          />
          {onFold && <IconButton size="small" icon={PanelLeftClose} label={t("chat.foldList")} onClick={onFold} />}
        </span>
        <input
          ref={bundle}
          type="file"
          hidden
          accept=".paddock"
          onChange={(event) => {
            const file = event.target.files?.[0];
            if (file) void importSession(file, go);
            event.target.value = "";
          }}
        />
      </div>
      <search>
        <form
          className={styles.search}
          onSubmit={(event) => {
            event.preventDefault();
            setSettled(words);
          }}
        >
          <SearchBox label={t("chat.search")} value={words} onChange={setWords} />
        </form>
      </search>
      <div className={styles.scroll}>
        <Titles words={words} current={current} mayWrite={mayWrite} leave={() => go("/chats")} />
        {settled.trim() && <Hits words={settled} />}
      </div>
    </nav>
  );
}

function Titles(props: { words: string; current: string | undefined; mayWrite: boolean; leave: () => void }) {
  const { words, current, mayWrite, leave } = props;
  const { t } = useTranslation();
  const sessions = useSessions(words);
  const hidden = useHidden((state) => state.ids);
  if (!sessions.data)
    return sessions.error ? (
      <Failed error={sessions.error} retry={() => void sessions.refetch()} />
    ) : (
      <Loading rows={6} />
    );
  const shown = sessions.data.filter((session) => !hidden.has(session.id));
  if (!shown.length)
    return words.trim() ? (
      <p className={styles.none}>{t("chat.noTitle")}</p>
    ) : (
      <Empty icon={MessagesSquare} title={t("chat.noChats")}>
        {t("chat.noChatsHint")}
      </Empty>
    );
  return (
    <>
      <ul className={styles.items}>
        {shown.map((session) => (
          <SessionRow
            key={session.id}
            session={session}
            current={session.id === current}
            mayWrite={mayWrite}
            onLeave={leave}
          />
        ))}
      </ul>
      {sessions.hasNextPage && (
        <Button
          size="small"
          tone="quiet"
          className={styles.more}
          busy={sessions.isFetchingNextPage}
          onClick={() => void sessions.fetchNextPage()}
        >
          {t("chat.moreChats")}
        </Button>
      )}
    </>
  );
}

/** Where words were said. */
function Hits({ words }: { words: string }) {
  const { t } = useTranslation();
  const hits = useSessionSearch(words);
  const hidden = useHidden((state) => state.ids);
  const found = hits.data?.filter((hit) => !hidden.has(hit.session));
  return (
    <section aria-label={t("chat.inWords")}>
      <h3 className={styles.section}>{t("chat.inWords")}</h3>
      {hits.error && !found && <Failed error={hits.error} retry={() => void hits.refetch()} />}
      {!found && hits.isFetching && <Loading rows={2} />}
      {found?.length === 0 && <p className={styles.none}>{t("chat.noHit")}</p>}
      <ul className={styles.items}>
        {found?.map((hit) => (
          <li key={hit.message} className={styles.item}>
            <Link
              href={`/chats/${hit.session}?message=${encodeURIComponent(hit.message)}&q=${encodeURIComponent(words)}`}
              className={styles.link}
            >
              <span className={styles.title}>{titleOf(hit)}</span>
              <span className={styles.excerpt}>{hit.excerpt}</span>
              <span className={styles.about}>
                <Time at={hit.at} />
              </span>
            </Link>
          </li>
        ))}
      </ul>
    </section>
  );
}
