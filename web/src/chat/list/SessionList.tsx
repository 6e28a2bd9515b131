import { Ellipsis, FileUp, MessagesSquare, PanelLeftClose, SquarePen } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation } from "wouter";
import { useSessionSearch, useSessions } from "@/session/store";
import { Button, IconButton } from "@/ui/controls/Button";
import { SearchBox } from "@/ui/controls/forms";
import { Menu } from "@/ui/controls/Menu";
import { RelativeTime } from "@/ui/format/formats";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { EmptyState, ErrorState, LoadingBars } from "@/ui/layout/query-states";
import styles from "./list.module.css";
import { SessionRow } from "./SessionRow";
import { importSession, sessionTitle, useHiddenSessions } from "./session-actions";

interface Props {
  current: string | undefined;
  mayWrite: boolean;
  onFold?: () => void;
}

const SEARCH_DELAY = 500;

/** All chats, newest first, with a full-text search. */
export function SessionList({ current, mayWrite, onFold }: Props) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const [search, setSearch] = useSearchParams();
  const [query, setQuery] = useState(search.get("q") ?? "");
  const [debouncedQuery, setDebouncedQuery] = useState(query);
  const bundle = useRef<HTMLInputElement>(null);

  // A pause in typing acts like Enter and puts the query into the URL.
  useEffect(() => {
    const timer = setTimeout(() => setDebouncedQuery(query), SEARCH_DELAY);
    return () => clearTimeout(timer);
  }, [query]);
  const inAddress = search.get("q") ?? "";
  useEffect(() => {
    if (debouncedQuery === inAddress) return;
    setSearch(
      (before) => {
        if (debouncedQuery) before.set("q", debouncedQuery);
        else before.delete("q");
        return before;
      },
      { replace: true },
    );
  }, [debouncedQuery, inAddress, setSearch]);

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
            setDebouncedQuery(query);
          }}
        >
          <SearchBox label={t("chat.search")} value={query} onChange={setQuery} />
        </form>
      </search>
      <div className={styles.scroll}>
        <SessionTitles query={query} current={current} mayWrite={mayWrite} onLeave={() => go("/chats")} />
        {debouncedQuery.trim() && <SearchHits query={debouncedQuery} />}
      </div>
    </nav>
  );
}

function SessionTitles(props: { query: string; current: string | undefined; mayWrite: boolean; onLeave: () => void }) {
  const { query, current, mayWrite, onLeave } = props;
  const { t } = useTranslation();
  const sessions = useSessions(query);
  const hidden = useHiddenSessions((state) => state.ids);
  if (!sessions.data)
    return sessions.error ? (
      <ErrorState error={sessions.error} retry={() => void sessions.refetch()} />
    ) : (
      <LoadingBars rows={6} />
    );
  const shown = sessions.data.filter((session) => !hidden.has(session.id));
  if (!shown.length)
    return query.trim() ? (
      <p className={styles.none}>{t("chat.noTitle")}</p>
    ) : (
      <EmptyState icon={MessagesSquare} title={t("chat.noChats")}>
        {t("chat.noChatsHint")}
      </EmptyState>
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
            onLeave={onLeave}
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

/** Messages that match the search. */
function SearchHits({ query }: { query: string }) {
  const { t } = useTranslation();
  const hits = useSessionSearch(query);
  const hidden = useHiddenSessions((state) => state.ids);
  const found = hits.data?.filter((hit) => !hidden.has(hit.session));
  return (
    <section aria-label={t("chat.inWords")}>
      <h3 className={styles.section}>{t("chat.inWords")}</h3>
      {hits.error && !found && <ErrorState error={hits.error} retry={() => void hits.refetch()} />}
      {!found && hits.isFetching && <LoadingBars rows={2} />}
      {found?.length === 0 && <p className={styles.none}>{t("chat.noHit")}</p>}
      <ul className={styles.items}>
        {found?.map((hit) => (
          <li key={hit.message} className={styles.item}>
            <Link
              href={`/chats/${hit.session}?message=${encodeURIComponent(hit.message)}&q=${encodeURIComponent(query)}`}
              className={styles.link}
            >
              <span className={styles.title}>{sessionTitle(hit)}</span>
              <span className={styles.excerpt}>{hit.excerpt}</span>
              <span className={styles.about}>
                <RelativeTime at={hit.at} />
              </span>
            </Link>
          </li>
        ))}
      </ul>
    </section>
  );
}
