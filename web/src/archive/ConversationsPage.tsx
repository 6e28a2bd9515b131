import { GitBranch, type LucideIcon, MessagesSquare, ScrollText, Users, Zap } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useParams } from "wouter";
import { buildUrl } from "@/api/client";
import { Badge } from "@/ui/controls/Badge";
import { formatAmount, Time } from "@/ui/format/formats";
import { formatMoney } from "@/ui/format/money";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { Page } from "@/ui/layout/Page";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { type Conversation, useConversations } from "./api";
import styles from "./archive.module.css";
import { ExportMenu } from "./ExportMenu";
import { Messages } from "./Messages";
import { lastUserText, textOfParts } from "./message-turns";

const ICONS: Record<Conversation["kind"], LucideIcon> = {
  main: MessagesSquare,
  subagent: Users,
  branch: GitBranch,
  side: Zap,
};

/** Conversations of one sandbox, joined from its exchanges. */
export default function ConversationsPage() {
  const { t } = useTranslation();
  const { id = "" } = useParams<{ id: string }>();
  const talks = useConversations(id);
  return (
    <Page
      title={t("archive.talks")}
      about={
        <span className={styles.crumbs}>
          <Link href={buildUrl("/archive", { sandbox: id })}>{t("archive.eachExchange")}</Link>
          <span className={styles.id}>{id}</span>
        </span>
      }
      actions={<ExportMenu query={{ sandbox: id }} name={id} />}
    >
      <QueryResult
        query={talks}
        rows={6}
        isEmpty={({ items }) => items.length === 0}
        empty={
          <EmptyState icon={ScrollText} title={t("archive.noTalks")}>
            {t("archive.noTalksHint")}
          </EmptyState>
        }
      >
        {({ items }) => <ConversationList talks={items} />}
      </QueryResult>
    </Page>
  );
}

function ConversationList({ talks }: { talks: Conversation[] }) {
  const { t } = useTranslation();
  const [search, setSearch] = useSearchParams();
  const chosen =
    talks.find((talk) => talk.id === search.get("thread")) ?? talks.find((talk) => talk.kind === "main") ?? talks[0];
  return (
    <div className={styles.talks}>
      <nav aria-label={t("archive.talks")}>
        <ul className={styles.threads}>
          {talks.map((talk) => {
            const Icon = ICONS[talk.kind];
            return (
              <li key={talk.id}>
                <button
                  type="button"
                  aria-current={talk === chosen ? "true" : undefined}
                  onClick={() => setSearch({ thread: talk.id }, { replace: true })}
                >
                  <Icon size={16} aria-hidden />
                  <span className={styles.threadText}>
                    <span className={styles.threadName}>
                      {conversationTitle(talk) || t(`archive.kind.${talk.kind}`)}
                    </span>
                    <span className={styles.soft}>
                      {t(`archive.kind.${talk.kind}`)} · {t("archive.turns", { count: talk.turns })}
                    </span>
                  </span>
                </button>
              </li>
            );
          })}
        </ul>
      </nav>
      {chosen && <ConversationThread key={chosen.id} talk={chosen} talks={talks} />}
    </div>
  );
}

function ConversationThread({ talk, talks }: { talk: Conversation; talks: Conversation[] }) {
  const { t, i18n } = useTranslation();
  const parent = talks.find((each) => each.id === talk.parent);
  return (
    <section className={styles.thread} aria-label={conversationTitle(talk)}>
      <h2 className="visually-hidden">{conversationTitle(talk)}</h2>
      <div className={styles.row}>
        <Badge tone={talk.kind === "main" ? "info" : "neutral"}>{t(`archive.kind.${talk.kind}`)}</Badge>
        <span className={styles.soft}>
          {talk.models.join(", ")} · <Time at={talk.at} /> ·{" "}
          {t("archive.inOut", {
            input: formatAmount(talk.usage.input, i18n.language),
            output: formatAmount(talk.usage.output, i18n.language),
          })}
          {typeof talk.cost === "number" && ` · ${formatMoney(talk.cost, i18n.language)}`}
        </span>
        {parent && (
          <Link href={`?thread=${parent.id}`}>{t("archive.branchOf", { name: conversationTitle(parent) })}</Link>
        )}
      </div>
      <Messages messages={talk.messages} scripted={talk.models.every((model) => model.startsWith("script-"))} />
      {talk.notes.length > 0 && (
        <ul className={styles.notes}>
          {talk.notes.map((note, index) => (
            <li key={index}>{note}</li>
          ))}
        </ul>
      )}
      <details>
        <summary>{t("archive.itsExchanges", { count: talk.exchanges.length })}</summary>
        <ol className={styles.list}>
          {talk.exchanges.map((id) => (
            <li key={id}>
              <Link href={`/archive/${id}`}>{id}</Link>
            </li>
          ))}
        </ol>
      </details>
    </section>
  );
}

/** Title of a conversation: the first user text that is not a system reminder. */
function conversationTitle(talk: Conversation): string {
  const asked = talk.messages
    .filter(({ role }) => role === "user")
    .flatMap(({ parts }) => parts.map((part) => textOfParts([part]).trim()))
    .find((words) => words !== "" && !words.startsWith("<"));
  return (asked ?? lastUserText(talk.messages)).split("\n", 1)[0]?.slice(0, 120) ?? "";
}
