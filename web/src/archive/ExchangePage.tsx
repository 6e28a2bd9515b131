import { useQueryClient } from "@tanstack/react-query";
import { Repeat2, Trash2 } from "lucide-react";
import { type ReactNode, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useLocation, useParams } from "wouter";
import { api } from "@/api/client";
import { may, useMe } from "@/shell/me";
import { Badge } from "@/ui/Badge";
import { Button } from "@/ui/Button";
import { money } from "@/ui/money";
import { Page } from "@/ui/Page";
import { useSearchParams } from "@/ui/search";
import { Empty, Loaded } from "@/ui/states";
import { Tabs } from "@/ui/Tabs";
import { amount, duration, size, Time } from "@/ui/Time";
import { Fold } from "@/ui/Transcript";
import { undoable } from "@/ui/toasts";
import styles from "./archive.module.css";
import { type ChatMessage, useExchange, type WholeExchange } from "./asking";
import { ExportMenu } from "./ExportMenu";
import { Messages } from "./Messages";
import { isScripted, Outcome } from "./Outcome";
import { Raw } from "./Raw";
import { Replay } from "./Replay";
import { Timing } from "./Timing";

/** One exchange with a model: what was asked and answered, and how it went. */
export default function ExchangePage() {
  const { t } = useTranslation();
  const { id = "" } = useParams<{ id: string }>();
  const exchange = useExchange(id);
  if (exchange.data) return <Shown key={id} exchange={exchange.data} />;
  return (
    <Page title={t("archive.one")} about={<Link href="/archive">{t("archive.title")}</Link>}>
      <Loaded query={exchange} rows={8}>
        {() => null}
      </Loaded>
    </Page>
  );
}

const TABS = ["messages", "request", "response", "timing"] as const;
type TabId = (typeof TABS)[number];

function Shown({ exchange }: { exchange: WholeExchange }) {
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
          <Outcome exchange={exchange} />
        </span>
      }
      actions={
        <>
          <Button icon={Repeat2} onClick={() => setReplaying(true)}>
            {t("archive.replay.open")}
          </Button>
          <ExportMenu query={{ number: exchange.number }} name={exchange.id} />
          <Delete exchange={exchange} />
        </>
      }
    >
      {exchange.error && (
        <p className={styles.problem} role="alert">
          {exchange.error}
        </p>
      )}
      <Facts exchange={exchange} />
      {exchange.notes.length > 0 && (
        <Fold title={t("archive.notes", { count: exchange.notes.length })} about={exchange.notes[0]}>
          <ul className={styles.notes}>
            {exchange.notes.map((note, index) => (
              <li key={index}>{note}</li>
            ))}
          </ul>
        </Fold>
      )}
      <Tabs
        label={t("archive.tabs")}
        tabs={TABS.map((id) => ({ id, label: t(`archive.tab.${id}`) }))}
        value={tab}
        onChange={(chosen) => setSearch({ tab: chosen }, { replace: true })}
      >
        <div className={styles.panel}>
          <h2 className="visually-hidden">{t(`archive.tab.${tab}`)}</h2>
          {tab === "messages" && <Conversation exchange={exchange} />}
          {(tab === "request" || tab === "response") && <Raw key={tab} id={exchange.id} which={tab} />}
          {tab === "timing" && <Timing exchange={exchange} />}
        </div>
      </Tabs>
      <Replay exchange={exchange} open={replaying} onClose={() => setReplaying(false)} />
    </Page>
  );
}

function Conversation({ exchange }: { exchange: WholeExchange }) {
  const { t } = useTranslation();
  const { answer } = exchange;
  const messages = useMemo(
    (): ChatMessage[] => [
      ...(exchange.messages ?? []),
      ...(answer && answer.parts.length > 0 ? [{ role: "assistant" as const, parts: answer.parts }] : []),
    ],
    [exchange.messages, answer],
  );
  if (messages.length === 0) return <Empty title={t("archive.unreadable")}>{t("archive.unreadableHint")}</Empty>;
  return (
    <>
      {exchange.tools && exchange.tools.length > 0 && (
        <Fold
          title={t("archive.tools", { count: exchange.tools.length })}
          about={exchange.tools.slice(0, 8).join(", ")}
        >
          <p className={styles.tools}>
            {exchange.tools.map((name) => (
              <Badge key={name}>{name}</Badge>
            ))}
          </p>
        </Fold>
      )}
      <Messages messages={messages} scripted={isScripted(exchange)} />
      {!answer && <p className={styles.problem}>{t("archive.noAnswer")}</p>}
    </>
  );
}

function Facts({ exchange }: { exchange: WholeExchange }) {
  const { t, i18n } = useTranslation();
  const { usage } = exchange;
  const tokens = (count: number) => amount(count, i18n.language);
  const facts: [string, ReactNode][] = [
    ["at", <Time key="at" at={exchange.at} />],
    ["provider", exchange.provider],
    ["providerModel", exchange.providerModel === exchange.model ? null : exchange.providerModel],
    ["format", formats(exchange)],
    ["input", usage && tokens(usage.input)],
    ["output", usage && tokens(usage.output)],
    ["cached", usage?.cacheRead ? tokens(usage.cacheRead) : null],
    ["reasoning", usage?.reasoning ? tokens(usage.reasoning) : null],
    ["cost", typeof exchange.cost === "number" ? money(exchange.cost, i18n.language) : null],
    ["firstByte", typeof exchange.firstByte === "number" ? duration(exchange.firstByte) : null],
    ["total", duration(exchange.total)],
    ["retries", exchange.retries > 0 ? String(exchange.retries) : null],
    ["finish", exchange.answer?.finish],
    ["requestSize", size(exchange.requestSize)],
    ["responseSize", size(exchange.responseSize)],
    ["client", exchange.client],
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

function formats({ format, providerFormat }: WholeExchange): string {
  return providerFormat && providerFormat !== format ? `${format} → ${providerFormat}` : format;
}

function Delete({ exchange }: { exchange: WholeExchange }) {
  const { t } = useTranslation();
  const [, go] = useLocation();
  const me = useMe();
  const client = useQueryClient();
  if (!may(me.data, "keys:admin")) return null;
  const remove = () =>
    undoable(
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
