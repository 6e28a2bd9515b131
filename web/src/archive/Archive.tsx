import { Radio, ScrollText } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { Badge } from "@/ui/Badge";
import { Button } from "@/ui/Button";
import { Code } from "@/ui/Code";
import { money } from "@/ui/money";
import { Page } from "@/ui/Page";
import { Switch } from "@/ui/Switch";
import { useSearchParams } from "@/ui/search";
import { Empty, Failed, Loading } from "@/ui/states";
import { type Column, Table } from "@/ui/Table";
import { amount, duration, Time } from "@/ui/Time";
import styles from "./archive.module.css";
import { asked, type Exchange, type Filter, filtersOf, useExchanges } from "./asking";
import { ExportMenu } from "./ExportMenu";
import { FilterBar } from "./FilterBar";
import { Outcome } from "./Outcome";
import { fitting, useTail } from "./useTail";

/** Everything that models were asked and answered, newest first. What is shown is in the address. */
export default function Archive() {
  const { t } = useTranslation();
  const [search, setSearch] = useSearchParams();
  const filters = filtersOf(search);
  const exchanges = useExchanges(filters);
  const stored = exchanges.data?.pages.flatMap((page) => page.items) ?? [];
  // The tail cannot look into what was said, and ends where a time does.
  const mayFollow = !filters.text && !filters.until;
  const live = search.has("live") && mayFollow;
  const tail = useTail(live && exchanges.isSuccess, stored[0]?.number ?? null, fitting(filters), filters);
  const known = new Set(stored.map((each) => each.id));
  const items = [...tail.items.filter((each) => !known.has(each.id)), ...stored];
  const set = (name: Filter | "live", value: string) =>
    setSearch(
      (now) => {
        if (value) now.set(name, value);
        else now.delete(name);
        return now;
      },
      { replace: true },
    );
  const columns = useColumns();
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
          <ExportMenu query={asked(filters)} name="exchanges" />
        </>
      }
    >
      <FilterBar filters={filters} onChange={set} />
      {filters.sandbox && (
        <p>
          <Link href={`/archive/sandboxes/${encodeURIComponent(filters.sandbox)}`}>{t("archive.joined")}</Link>
        </p>
      )}
      {exchanges.isPending ? (
        <Loading rows={6} />
      ) : exchanges.error && items.length === 0 ? (
        <Failed error={exchanges.error} retry={() => void exchanges.refetch()} />
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
        <Empty
          icon={ScrollText}
          title={t("archive.noneFound")}
          action={<Button onClick={() => setSearch({})}>{t("archive.clearAll")}</Button>}
        >
          {t("archive.noneFoundHint")}
        </Empty>
      ) : (
        <Nothing />
      )}
    </Page>
  );
}

/** How exchanges come about. */
function Nothing() {
  const { t } = useTranslation();
  const origin = window.location.origin;
  return (
    <Empty
      icon={ScrollText}
      title={t("archive.none")}
      action={
        <div className={styles.example}>
          <p>
            <Link href="/tasks">{t("archive.runTask")}</Link> · <Link href="/chats">{t("archive.beginChat")}</Link>
          </p>
          <Code
            label={t("archive.orPoint")}
            text={`export OPENAI_BASE_URL=${origin}/v1\nexport ANTHROPIC_BASE_URL=${origin}\n`}
            wrap
          />
        </div>
      }
    >
      {t("archive.noneHint")}
    </Empty>
  );
}

function useColumns(): Column<Exchange>[] {
  const { t, i18n } = useTranslation();
  const dash = <span aria-hidden>–</span>;
  return [
    {
      id: "asked",
      label: t("archive.column.asked"),
      cell: (each) => (
        <Link href={`/archive/${each.id}`} className={styles.asked} title={each.preview ?? undefined}>
          <bdi>{each.preview || t("archive.noPreview")}</bdi>
        </Link>
      ),
    },
    { id: "at", label: t("archive.column.at"), cell: (each) => <Time at={each.at} /> },
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
    { id: "outcome", label: t("archive.column.outcome"), cell: (each) => <Outcome exchange={each} /> },
    { id: "from", label: t("archive.column.from"), minor: true, cell: (each) => <From exchange={each} /> },
    {
      id: "tokens",
      label: t("archive.column.tokens"),
      numeric: true,
      minor: true,
      cell: (each) =>
        each.usage ? `${amount(each.usage.input, i18n.language)} → ${amount(each.usage.output, i18n.language)}` : dash,
    },
    {
      id: "cost",
      label: t("archive.column.cost"),
      numeric: true,
      minor: true,
      cell: (each) => (typeof each.cost === "number" ? money(each.cost, i18n.language) : dash),
    },
    {
      id: "total",
      label: t("archive.column.total"),
      numeric: true,
      minor: true,
      cell: (each) => duration(each.total),
    },
  ];
}

/** What an exchange belongs to. */
export function From({ exchange }: { exchange: Exchange }) {
  const { t } = useTranslation();
  if (exchange.run) return <Link href={`/runs/${exchange.run}`}>{t("archive.from.run")}</Link>;
  if (exchange.session) return <Link href={`/chats/${exchange.session}`}>{t("archive.from.session")}</Link>;
  if (exchange.sandbox) return <Link href={`/archive/sandboxes/${exchange.sandbox}`}>{t("archive.from.sandbox")}</Link>;
  return <span className={styles.soft}>{exchange.client.split(/[ /]/)[0] || t("archive.from.key")}</span>;
}
