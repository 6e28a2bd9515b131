import { GitBranch, type LucideIcon, MessagesSquare, ScrollText, Users, Zap } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useParams } from "wouter";
import { address } from "@/api/client";
import { Badge } from "@/ui/Badge";
import { money } from "@/ui/money";
import { Page } from "@/ui/Page";
import { useSearchParams } from "@/ui/search";
import { Empty, Loaded } from "@/ui/states";
import { amount, Time } from "@/ui/Time";
import styles from "./archive.module.css";
import { type Talk, useTalks } from "./asking";
import { ExportMenu } from "./ExportMenu";
import { Messages } from "./Messages";
import { lastQuestion, wordsOf } from "./reading";

const ICONS: Record<Talk["kind"], LucideIcon> = { main: MessagesSquare, subagent: Users, branch: GitBranch, side: Zap };

/** What was said in one sandbox, joined into conversations. */
export default function ConversationsPage() {
  const { t } = useTranslation();
  const { id = "" } = useParams<{ id: string }>();
  const talks = useTalks(id);
  return (
    <Page
      title={t("archive.talks")}
      about={
        <span className={styles.crumbs}>
          <Link href={address("/archive", { sandbox: id })}>{t("archive.eachExchange")}</Link>
          <span className={styles.id}>{id}</span>
        </span>
      }
      actions={<ExportMenu query={{ sandbox: id }} name={id} />}
    >
      <Loaded
        query={talks}
        rows={6}
        isEmpty={({ items }) => items.length === 0}
        empty={
          <Empty icon={ScrollText} title={t("archive.noTalks")}>
            {t("archive.noTalksHint")}
          </Empty>
        }
      >
        {({ items }) => <Talks talks={items} />}
      </Loaded>
    </Page>
  );
}

function Talks({ talks }: { talks: Talk[] }) {
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
                    <span className={styles.threadName}>{about(talk) || t(`archive.kind.${talk.kind}`)}</span>
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
      {chosen && <Thread key={chosen.id} talk={chosen} talks={talks} />}
    </div>
  );
}

function Thread({ talk, talks }: { talk: Talk; talks: Talk[] }) {
  const { t, i18n } = useTranslation();
  const parent = talks.find((each) => each.id === talk.parent);
  return (
    <section className={styles.thread} aria-label={about(talk)}>
      <h2 className="visually-hidden">{about(talk)}</h2>
      <div className={styles.row}>
        <Badge tone={talk.kind === "main" ? "info" : "neutral"}>{t(`archive.kind.${talk.kind}`)}</Badge>
        <span className={styles.soft}>
          {talk.models.join(", ")} · <Time at={talk.at} /> ·{" "}
          {t("archive.inOut", {
            input: amount(talk.usage.input, i18n.language),
            output: amount(talk.usage.output, i18n.language),
          })}
          {typeof talk.cost === "number" && ` · ${money(talk.cost, i18n.language)}`}
        </span>
        {parent && <Link href={`?thread=${parent.id}`}>{t("archive.branchOf", { name: about(parent) })}</Link>}
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

/** What a conversation is about: what was asked first that was no note of the agent's own. */
function about(talk: Talk): string {
  const asked = talk.messages
    .filter(({ role }) => role === "user")
    .flatMap(({ parts }) => parts.map((part) => wordsOf([part]).trim()))
    .find((words) => words !== "" && !words.startsWith("<"));
  return (asked ?? lastQuestion(talk.messages)).split("\n", 1)[0]?.slice(0, 120) ?? "";
}
