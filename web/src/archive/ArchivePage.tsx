import { Radio, ScrollText } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { CodeBlock } from "@/ui/content/CodeBlock";
import { Badge } from "@/ui/controls/Badge";
import { Button } from "@/ui/controls/Button";
import { Switch } from "@/ui/controls/Switch";
import { continueNoteText } from "@/ui/format/continue-note";
import { formatCount, formatDuration, RelativeTime } from "@/ui/format/formats";
import { formatMoney } from "@/ui/format/money";
import { useSearchParams } from "@/ui/hooks/useSearchParams";
import { Page } from "@/ui/layout/Page";
import { EmptyState, ErrorState, LoadingBars } from "@/ui/layout/query-states";
import { type Column, Table } from "@/ui/layout/Table";
import {
  type Exchange,
  type ExchangeFilter,
  exchangeFiltersFromUrl,
  exchangeFiltersToQuery,
  useExchanges,
} from "./api";
import styles from "./archive.module.css";
import { ExchangeFilters } from "./ExchangeFilters";
import { ExchangeOutcomeBadge } from "./ExchangeOutcomeBadge";
import { ExportConversationsMenu } from "./ExportConversationsMenu";
import { MODEL_TEST_CLIENT } from "./model-test-client";
import { exchangeMatcher, useExchangeTail } from "./useExchangeTail";

/** All recorded model requests, newest first. Filters are in the URL. */
export default function ArchivePage() {
  const { t } = useTranslation();
  const [search, setSearch] = useSearchParams();
  const filters = exchangeFiltersFromUrl(search);
  const exchanges = useExchanges(filters);
  const stored = exchanges.data?.pages.flatMap((page) => page.items) ?? [];
  // The live tail cannot filter by content, and has no meaning with an end time.
  const mayFollow = !filters.text && !filters.until;
  const live = search.has("live") && mayFollow;
  const tail = useExchangeTail(
    live && exchanges.isSuccess,
    stored[0]?.number ?? null,
    exchangeMatcher(filters),
    filters,
  );
  const storedIds = new Set(stored.map((each) => each.id));
  const items = [...tail.items.filter((each) => !storedIds.has(each.id)), ...stored];
  const set = (name: ExchangeFilter | "live", value: string) =>
    setSearch(
      (params) => {
        if (value) params.set(name, value);
        else params.delete(name);
        return params;
      },
      { replace: true },
    );
  const columns = useExchangeColumns();
  const filtered = Object.keys(filters).length > 0;
  return (
    <Page
      title={t("archive.title")}
      about={t("archive.about")}
      actions={
        <>
          <span className={styles.live}>
            <Switch
              label={t("archive.live")}
              checked={live}
              disabled={!mayFollow}
              onChange={(on) => set("live", on ? "1" : "")}
            />
            {live && (
              <Badge tone={tail.link === "live" ? "good" : "warning"}>
                <Radio size={13} aria-hidden /> {t(`archive.link.${tail.link}`)}
              </Badge>
            )}
          </span>
          <ExportConversationsMenu query={exchangeFiltersToQuery(filters)} name="exchanges" />
        </>
      }
    >
      <ExchangeFilters filters={filters} onChange={set} />
      {filters.sandbox && (
        <p>
          <Link href={`/archive/sandboxes/${encodeURIComponent(filters.sandbox)}`}>{t("archive.joined")}</Link>
        </p>
      )}
      {exchanges.isPending ? (
        <LoadingBars rows={6} />
      ) : exchanges.error && items.length === 0 ? (
        <ErrorState error={exchanges.error} retry={() => void exchanges.refetch()} />
      ) : items.length > 0 ? (
        <>
          <Table label={t("archive.title")} columns={columns} rows={items} keyOf={(each) => each.id} />
          {exchanges.hasNextPage && (
            <div className={styles.more}>
              <Button busy={exchanges.isFetchingNextPage} onClick={() => void exchanges.fetchNextPage()}>
                {t("archive.older")}
              </Button>
            </div>
          )}
        </>
      ) : filtered ? (
        <EmptyState
          icon={ScrollText}
          title={t("archive.noneFound")}
          action={<Button onClick={() => setSearch({})}>{t("archive.clearAll")}</Button>}
        >
          {t("archive.noneFoundHint")}
        </EmptyState>
      ) : (
        <EmptyArchive />
      )}
    </Page>
  );
}

/** Explains how exchanges are recorded. */
function EmptyArchive() {
  const { t } = useTranslation();
  const origin = window.location.origin;
  return (
    <EmptyState
      icon={ScrollText}
      title={t("archive.none")}
      action={
        <div className={styles.example}>
          <p>
            <Link href="/tasks">{t("archive.runTask")}</Link> · <Link href="/chats">{t("archive.beginChat")}</Link>
          </p>
          <CodeBlock
            label={t("archive.orPoint")}
            text={`export OPENAI_BASE_URL=${origin}/v1\nexport ANTHROPIC_BASE_URL=${origin}\n`}
            wrap
          />
        </div>
      }
    >
      {t("archive.noneHint")}
    </EmptyState>
  );
}

function useExchangeColumns(): Column<Exchange>[] {
  const { t, i18n } = useTranslation();
  const dash = <span aria-hidden>–</span>;
  return [
    {
      id: "asked",
      label: t("archive.column.asked"),
      cell: (each) => {
        const preview = each.preview && (continueNoteText(each.preview) ?? each.preview);
        return (
          <Link href={`/archive/${each.id}`} className={styles.preview} title={preview || undefined}>
            <bdi>{preview || t("archive.noPreview")}</bdi>
          </Link>
        );
      },
    },
    { id: "at", label: t("archive.column.at"), cell: (each) => <RelativeTime at={each.at} /> },
    {
      id: "model",
      label: t("archive.column.model"),
      minor: true,
      cell: (each) => (
        <span className={styles.model} title={each.model}>
          {each.model || dash}
        </span>
      ),
    },
    { id: "outcome", label: t("archive.column.outcome"), cell: (each) => <ExchangeOutcomeBadge exchange={each} /> },
    { id: "from", label: t("archive.column.from"), minor: true, cell: (each) => <ExchangeOrigin exchange={each} /> },
    {
      id: "tokens",
      label: t("archive.column.tokens"),
      numeric: true,
      minor: true,
      cell: (each) =>
        each.usage
          ? `${formatCount(each.usage.input, i18n.language)} → ${formatCount(each.usage.output, i18n.language)}`
          : dash,
    },
    {
      id: "cost",
      label: t("archive.column.cost"),
      numeric: true,
      minor: true,
      cell: (each) => (typeof each.cost === "number" ? formatMoney(each.cost, i18n.language) : dash),
    },
    {
      id: "total",
      label: t("archive.column.total"),
      numeric: true,
      minor: true,
      cell: (each) => formatDuration(each.total),
    },
  ];
}

/** Run, chat or sandbox that the exchange belongs to. */
export function ExchangeOrigin({ exchange }: { exchange: Exchange }) {
  const { t } = useTranslation();
  if (exchange.run) return <Link href={`/runs/${exchange.run}`}>{t("archive.from.run")}</Link>;
  if (exchange.session) return <Link href={`/chats/${exchange.session}`}>{t("archive.from.session")}</Link>;
  if (exchange.sandbox) return <Link href={`/archive/sandboxes/${exchange.sandbox}`}>{t("archive.from.sandbox")}</Link>;
  if (exchange.client === MODEL_TEST_CLIENT) return <span className={styles.soft}>{t("archive.from.modelTest")}</span>;
  return <span className={styles.soft}>{exchange.client.split(/[ /]/)[0] || t("archive.from.key")}</span>;
}
