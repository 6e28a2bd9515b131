import { useQuery } from "@tanstack/react-query";
import { CircleCheck } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { hasScope, useCurrentUser } from "@/shell/account/current-user";
import { ProviderState } from "@/shell/models/ProviderState";
import { type ServerFacts, useServerFacts } from "@/shell/status/server-facts";
import { Badge } from "@/ui/controls/Badge";
import { formatBytes, RelativeTime } from "@/ui/format/formats";
import { translateServerText } from "@/ui/format/server-text";
import { Page } from "@/ui/layout/Page";
import { QueryResult } from "@/ui/layout/query-states";
import { healthHints } from "./health-hints";
import { ServerLog } from "./ServerLog";
import styles from "./UsagePage.module.css";

/** Server health: facts, providers and log. */
export default function HealthPage() {
  const { t } = useTranslation();
  const me = useCurrentUser().data;
  const server = useServerFacts(5_000);
  const llm = useQuery({
    queryKey: ["health", "llm"],
    queryFn: ({ signal }) => api.get<Schema<"ModelsResponse">>("/v1/llm", { signal }),
    refetchInterval: 5_000,
    enabled: hasScope(me, "llm:read"),
  });
  return (
    <Page title={t("health.title")} about={t("health.about")}>
      <QueryResult query={server}>
        {(facts) => (
          <>
            <HealthHints facts={facts} llm={llm.data} />
            <div className={styles.cards}>
              <ServerCard facts={facts} />
              <SandboxesCard facts={facts} />
              {llm.isEnabled && (
                <HealthCard title={t("health.models")}>
                  <QueryResult query={llm} rows={3}>
                    {(models) => <ProvidersCard models={models} />}
                  </QueryResult>
                </HealthCard>
              )}
              <AgentsCard facts={facts} />
            </div>
          </>
        )}
      </QueryResult>
      {hasScope(me, "admin") && <ServerLog />}
    </Page>
  );
}

function HealthCard({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className={styles.card} aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function HealthHints({ facts, llm }: { facts: ServerFacts; llm: Schema<"ModelsResponse"> | undefined }) {
  const { t } = useTranslation();
  const hints = healthHints(facts, llm);
  const kindTitle = (kind: string) => t(`chat.kindTitle.${kind}`, kind);
  if (hints.length === 0)
    return (
      <p role="status">
        <Badge tone="good">
          <CircleCheck size={14} aria-hidden /> {t("health.well")}
        </Badge>
      </p>
    );
  return (
    <ul className={styles.hints}>
      {hints.map(({ id, values }) => (
        <li key={id + JSON.stringify(values)}>
          {t(id === "keyRefused" ? "shell.provider.keyRefusedBy" : `health.hints.${id}`, {
            ...values,
            ...(values.kind ? { kind: kindTitle(String(values.kind)) } : {}),
            ...(values.problem ? { problem: translateServerText(String(values.problem)) } : {}),
          })}{" "}
          {id === "scripts" && <Link href="/settings/models">{t("health.connect")}</Link>}
        </li>
      ))}
    </ul>
  );
}

function ServerCard({ facts }: { facts: ServerFacts }) {
  const { t } = useTranslation();
  return (
    <HealthCard title={t("health.server")}>
      <dl className={styles.facts}>
        <dt>{t("health.version")}</dt>
        <dd>{facts.version}</dd>
        <dt>{t("health.started")}</dt>
        <dd>
          <RelativeTime at={facts.startedAt} />
        </dd>
        <dt>{t("health.backends")}</dt>
        <dd>{facts.backends.join(", ")}</dd>
        <dt>{t("health.disk")}</dt>
        <dd>{t("health.diskFree", { free: formatBytes(facts.disk.free), total: formatBytes(facts.disk.total) })}</dd>
        <dt>{t("health.tenant")}</dt>
        <dd>
          <bdi>{facts.tenant}</bdi>
        </dd>
      </dl>
    </HealthCard>
  );
}

function SandboxesCard({ facts }: { facts: ServerFacts }) {
  const { t } = useTranslation();
  const states = Object.entries(facts.sandboxes);
  return (
    <HealthCard title={t("health.sandboxes")}>
      {states.length === 0 ? (
        <p className={styles.note}>{t("health.noSandboxes")}</p>
      ) : (
        <ul className={styles.plainList}>
          {states.map(([state, count]) => (
            <li key={state}>
              <Link href={`/sandboxes?state=${encodeURIComponent(state)}`}>{t(`sandboxes.states.${state}`)}</Link>
              <span>{count}</span>
            </li>
          ))}
        </ul>
      )}
    </HealthCard>
  );
}

function ProvidersCard({ models }: { models: Schema<"ModelsResponse"> }) {
  const { t } = useTranslation();
  const { archive } = models;
  return (
    <>
      <ul className={styles.plainList}>
        {models.providers.map((provider) => (
          <li key={provider.name}>
            <span>
              <bdi>{provider.name}</bdi> <span className={styles.note}>{provider.kind}</span>
            </span>
            <ProviderState provider={provider} />
          </li>
        ))}
      </ul>
      {models.providers.length === 0 && <p className={styles.note}>{t("health.noProviders")}</p>}
      <dl className={styles.facts}>
        <dt>{t("health.archive")}</dt>
        <dd>{t(`health.archives.${archive.enabled ? archive.durability : "off"}`)}</dd>
        <dt>{t("health.waiting")}</dt>
        <dd>
          {archive.waitingBytes > 0 ? (
            <Badge tone="warning">{formatBytes(archive.waitingBytes)}</Badge>
          ) : (
            formatBytes(0)
          )}
        </dd>
        <dt>{t("health.lost")}</dt>
        <dd>{archive.lost > 0 ? <Badge tone="danger">{archive.lost}</Badge> : 0}</dd>
      </dl>
    </>
  );
}

/** Missing requirement of an agent: the command that installs it, or a message. */
function missingText(missing: string): string {
  return missing.startsWith("pip install ") ? missing : translateServerText(missing);
}

function AgentsCard({ facts }: { facts: ServerFacts }) {
  const { t } = useTranslation();
  return (
    <HealthCard title={t("health.agents")}>
      <ul className={styles.plainList}>
        {facts.agents.chat.map((agent) => (
          <li key={agent.name}>
            <span>
              <bdi>{agent.name}</bdi>{" "}
              {agent.name === facts.agents.default && <span className={styles.note}>{t("health.default")}</span>}
            </span>
            {agent.ready ? (
              agent.built === false ? (
                <Badge>{t("health.notBuilt")}</Badge>
              ) : (
                <Badge tone="good">{t("health.ready")}</Badge>
              )
            ) : (
              <Badge>{agent.missing ? missingText(agent.missing) : t("health.notReady")}</Badge>
            )}
          </li>
        ))}
      </ul>
    </HealthCard>
  );
}
