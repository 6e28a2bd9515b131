import { GitBranch, type LucideIcon, MessagesSquare, ScrollText, Users, Zap } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useParams } from "wouter";
import { buildUrl } from "@/api/client";
import { Badge } from "@/ui/controls/Badge";
import { formatAmount, RelativeTime } from "@/ui/format/formats";
import { formatMoney } from "@/ui/format/money";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { Page } from "@/ui/layout/Page";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { ArchivedMessages } from "./ArchivedMessages";
import { type Conversation, useConversations } from "./api";
import styles from "./archive.module.css";
import { ExportConversationsMenu } from "./ExportConversationsMenu";
import { joinTextParts, lastUserText } from "./message-turns";

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
  const conversations = useConversations(id);
  return (
    <Page
      title={t("archive.talks")}
      about={
        <span className={styles.crumbs}>
          <Link href={buildUrl("/archive", { sandbox: id })}>{t("archive.eachExchange")}</Link>
          <span className={styles.id}>{id}</span>
        </span>
      }
      actions={<ExportConversationsMenu query={{ sandbox: id }} name={id} />}
    >
      <QueryResult
        query={conversations}
        rows={6}
        isEmpty={({ items }) => items.length === 0}
        empty={
          <EmptyState icon={ScrollText} title={t("archive.noTalks")}>
            {t("archive.noTalksHint")}
          </EmptyState>
        }
      >
        {({ items }) => <ConversationList conversations={items} />}
      </QueryResult>
    </Page>
  );
}

function ConversationList({ conversations }: { conversations: Conversation[] }) {
  const { t } = useTranslation();
  const [search, setSearch] = useSearchParams();
  const chosen =
    conversations.find((conversation) => conversation.id === search.get("thread")) ??
    conversations.find((conversation) => conversation.kind === "main") ??
    conversations[0];
  return (
    <div className={styles.conversations}>
      <nav aria-label={t("archive.talks")}>
        <ul className={styles.threads}>
          {conversations.map((conversation) => {
            const Icon = ICONS[conversation.kind];
            return (
              <li key={conversation.id}>
                <button
                  type="button"
                  aria-current={conversation === chosen ? "true" : undefined}
                  onClick={() => setSearch({ thread: conversation.id }, { replace: true })}
                >
                  <Icon size={16} aria-hidden />
                  <span className={styles.threadText}>
                    <span className={styles.threadName}>
                      {conversationTitle(conversation) || t(`archive.kind.${conversation.kind}`)}
                    </span>
                    <span className={styles.soft}>
                      {t(`archive.kind.${conversation.kind}`)} · {t("archive.turns", { count: conversation.turns })}
                    </span>
                  </span>
                </button>
              </li>
            );
          })}
        </ul>
      </nav>
      {chosen && <ConversationThread key={chosen.id} conversation={chosen} conversations={conversations} />}
    </div>
  );
}

function ConversationThread({
  conversation,
  conversations,
}: {
  conversation: Conversation;
  conversations: Conversation[];
}) {
  const { t, i18n } = useTranslation();
  const parent = conversations.find((each) => each.id === conversation.parent);
  return (
    <section className={styles.thread} aria-label={conversationTitle(conversation)}>
      <h2 className="visually-hidden">{conversationTitle(conversation)}</h2>
      <div className={styles.row}>
        <Badge tone={conversation.kind === "main" ? "info" : "neutral"}>{t(`archive.kind.${conversation.kind}`)}</Badge>
        <span className={styles.soft}>
          {conversation.models.join(", ")} · <RelativeTime at={conversation.at} /> ·{" "}
          {t("archive.inOut", {
            input: formatAmount(conversation.usage.input, i18n.language),
            output: formatAmount(conversation.usage.output, i18n.language),
          })}
          {typeof conversation.cost === "number" && ` · ${formatMoney(conversation.cost, i18n.language)}`}
        </span>
        {parent && (
          <Link href={`?thread=${parent.id}`}>{t("archive.branchOf", { name: conversationTitle(parent) })}</Link>
        )}
      </div>
      <ArchivedMessages
        messages={conversation.messages}
        scripted={conversation.models.every((model) => model.startsWith("script-"))}
      />
      {conversation.notes.length > 0 && (
        <ul className={styles.notes}>
          {conversation.notes.map((note, index) => (
            <li key={index}>{note}</li>
          ))}
        </ul>
      )}
      <details>
        <summary>{t("archive.itsExchanges", { count: conversation.exchanges.length })}</summary>
        <ol className={styles.list}>
          {conversation.exchanges.map((id) => (
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
function conversationTitle(conversation: Conversation): string {
  const firstUserText = conversation.messages
    .filter(({ role }) => role === "user")
    .flatMap(({ parts }) => parts.map((part) => joinTextParts([part]).trim()))
    .find((userText) => userText !== "" && !userText.startsWith("<"));
  return (firstUserText ?? lastUserText(conversation.messages)).split("\n", 1)[0]?.slice(0, 120) ?? "";
}
