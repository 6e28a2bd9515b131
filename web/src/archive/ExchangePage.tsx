import { useQueryClient } from "@tanstack/react-query";
import { Repeat2, Trash2 } from "lucide-react";
import { type ReactNode, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation, useParams } from "wouter";
import { api } from "@/api/client";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { TextWithCode } from "@/ui/content/TextWithCode";
import { FoldableSection } from "@/ui/content/Transcript";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { Tabs } from "@/ui/controls/Tabs";
import { runWithUndo } from "@/ui/controls/toasts";
import { formatAmount, formatBytes, formatDuration, RelativeTime } from "@/ui/format/formats";
import { formatMoney } from "@/ui/format/money";
import { translateServerText } from "@/ui/format/server-text";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { Page } from "@/ui/layout/Page";
import { EmptyState, QueryResult } from "@/ui/layout/query-states";
import { ArchivedMessages } from "./ArchivedMessages";
import { type ChatMessage, type ExchangeDetail, useExchange } from "./api";
import styles from "./archive.module.css";
import { ExchangeOutcomeBadge, isScriptedExchange } from "./ExchangeOutcomeBadge";
import { ExportConversationsMenu } from "./ExportConversationsMenu";
import { MODEL_TEST_CLIENT } from "./model-test-client";
import { RawExchangeBody } from "./RawExchangeBody";
import { ReplayExchangeDialog } from "./ReplayExchangeDialog";
import { ResponseTiming } from "./ResponseTiming";

/** One model exchange: request, answer, timing and cost. */
export default function ExchangePage() {
  const { t } = useTranslation();
  const { id = "" } = useParams<{ id: string }>();
  const exchange = useExchange(id);
  if (exchange.data) return <ExchangeDetails key={id} exchange={exchange.data} />;
  return (
    <Page title={t("archive.one")} about={<Link href="/archive">{t("archive.title")}</Link>}>
      <QueryResult query={exchange} rows={8}>
        {() => null}
      </QueryResult>
    </Page>
  );
}

const TABS = ["messages", "request", "response", "timing"] as const;
type TabId = (typeof TABS)[number];

function ExchangeDetails({ exchange }: { exchange: ExchangeDetail }) {
  const { t } = useTranslation();
  const [search, setSearch] = useSearchParams();
  const [replaying, setReplaying] = useState(false);
  const tab: TabId = TABS.find((each) => each === search.get("tab")) ?? "messages";
  return (
    <Page
      title={t("archive.oneOf", { model: exchange.model || exchange.operation })}
      about={
        <span className={styles.crumbs}>
          <Link href="/archive">{t("archive.title")}</Link>
          <span className={styles.id}>{exchange.id}</span>
          <ExchangeOutcomeBadge exchange={exchange} />
        </span>
      }
      actions={
        <>
          <Button icon={Repeat2} onClick={() => setReplaying(true)}>
            {t("archive.replay.open")}
          </Button>
          <ExportConversationsMenu query={{ number: exchange.number }} name={exchange.id} />
          <DeleteExchangeButton exchange={exchange} />
        </>
      }
    >
      {exchange.error && (
        <p className={styles.problem} role="alert">
          <TextWithCode text={translateServerText(exchange.error)} />
        </p>
      )}
      <ExchangeFacts exchange={exchange} />
      {exchange.notes.length > 0 && (
        <FoldableSection
          title={t("archive.notes", { count: exchange.notes.length })}
          about={<TextWithCode text={translateServerText(exchange.notes[0] ?? "")} />}
        >
          <ul className={styles.notes}>
            {exchange.notes.map((note, index) => (
              <li key={index}>
                <TextWithCode text={translateServerText(note)} />
              </li>
            ))}
          </ul>
        </FoldableSection>
      )}
      <Tabs
        label={t("archive.tabs")}
        tabs={TABS.map((id) => ({ id, label: t(`archive.tab.${id}`) }))}
        value={tab}
        onChange={(chosen) => setSearch({ tab: chosen }, { replace: true })}
      >
        <div className={styles.panel}>
          <h2 className="visually-hidden">{t(`archive.tab.${tab}`)}</h2>
          {tab === "messages" && <ExchangeConversation exchange={exchange} />}
          {(tab === "request" || tab === "response") && <RawExchangeBody key={tab} id={exchange.id} side={tab} />}
          {tab === "timing" && <ResponseTiming exchange={exchange} />}
        </div>
      </Tabs>
      <ReplayExchangeDialog exchange={exchange} open={replaying} onClose={() => setReplaying(false)} />
    </Page>
  );
}

function ExchangeConversation({ exchange }: { exchange: ExchangeDetail }) {
  const { t } = useTranslation();
  const { answer } = exchange;
  const messages = useMemo(
    (): ChatMessage[] => [
      ...(exchange.messages ?? []),
      ...(answer && answer.parts.length > 0 ? [{ role: "assistant" as const, parts: answer.parts }] : []),
    ],
    [exchange.messages, answer],
  );
  if (messages.length === 0)
    return <EmptyState title={t("archive.unreadable")}>{t("archive.unreadableHint")}</EmptyState>;
  return (
    <>
      {exchange.tools && exchange.tools.length > 0 && (
        <FoldableSection
          title={t("archive.tools", { count: exchange.tools.length })}
          about={exchange.tools.slice(0, 8).join(", ")}
        >
          <p className={styles.tools}>
            {exchange.tools.map((name) => (
              <Badge key={name}>{name}</Badge>
            ))}
          </p>
        </FoldableSection>
      )}
      <ArchivedMessages messages={messages} scripted={isScriptedExchange(exchange)} />
      {!answer && <p className={styles.problem}>{t("archive.noAnswer")}</p>}
    </>
  );
}

function ExchangeFacts({ exchange }: { exchange: ExchangeDetail }) {
  const { t, i18n } = useTranslation();
  const { usage } = exchange;
  const tokens = (count: number) => formatAmount(count, i18n.language);
  const facts: [string, ReactNode][] = [
    ["at", <RelativeTime key="at" at={exchange.at} />],
    ["provider", exchange.provider],
    ["providerModel", exchange.providerModel === exchange.model ? null : exchange.providerModel],
    ["format", formatNames(exchange)],
    ["input", usage && tokens(usage.input)],
    ["output", usage && tokens(usage.output)],
    ["cached", usage?.cacheRead ? tokens(usage.cacheRead) : null],
    ["reasoning", usage?.reasoning ? tokens(usage.reasoning) : null],
    ["cost", typeof exchange.cost === "number" ? formatMoney(exchange.cost, i18n.language) : null],
    ["firstByte", typeof exchange.firstByte === "number" ? formatDuration(exchange.firstByte) : null],
    ["total", formatDuration(exchange.total)],
    ["retries", exchange.retries > 0 ? String(exchange.retries) : null],
    ["finish", exchange.answer?.finish],
    ["requestSize", formatBytes(exchange.requestSize)],
    ["responseSize", formatBytes(exchange.responseSize)],
    ["client", exchange.client === MODEL_TEST_CLIENT ? t("archive.from.modelTest") : exchange.client],
    [
      "run",
      exchange.run && (
        <Link key="run" href={`/runs/${exchange.run}`}>
          {exchange.run}
        </Link>
      ),
    ],
    [
      "session",
      exchange.session && (
        <Link key="chat" href={`/chats/${exchange.session}`}>
          {exchange.session}
        </Link>
      ),
    ],
    [
      "sandbox",
      exchange.sandbox && (
        <Link key="sandbox" href={`/archive/sandboxes/${exchange.sandbox}`}>
          {exchange.sandbox}
        </Link>
      ),
    ],
    ["user", exchange.user],
  ];
  return (
    <dl className={styles.facts}>
      {facts
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{t(`archive.fact.${name}`)}</dt>
            <dd>
              {value}
              {exchange.estimated && (name === "input" || name === "output") && ` (${t("archive.estimated")})`}
            </dd>
          </div>
        ))}
    </dl>
  );
}

function formatNames({ format, providerFormat }: ExchangeDetail): string {
  return providerFormat && providerFormat !== format ? `${format} → ${providerFormat}` : format;
}

function DeleteExchangeButton({ exchange }: { exchange: ExchangeDetail }) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const me = useCurrentUser();
  const client = useQueryClient();
  if (!hasScope(me.data, "keys:admin")) return null;
  const remove = () =>
    runWithUndo(
      t("archive.deleted"),
      t("common.undo"),
      async () => {
        await api.delete(`/v1/exchanges/${encodeURIComponent(exchange.id)}`);
        await client.invalidateQueries({ queryKey: ["archive"] });
      },
      { hide: () => go("/archive"), show: () => go(`/archive/${exchange.id}`) },
    );
  return (
    <Button icon={Trash2} onClick={remove}>
      {t("common.delete")}
    </Button>
  );
}
