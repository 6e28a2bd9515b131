import { useQuery } from "@tanstack/react-query";
import { CircleCheck } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "wouter";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { may, useMe } from "@/shell/me";
import { ProviderState } from "@/shell/ProviderState";
import { type ServerFacts, useServer } from "@/shell/server";
import { Badge } from "@/ui/Badge";
import { Page } from "@/ui/Page";
import { Loaded } from "@/ui/states";
import { size, Time } from "@/ui/Time";
import { hintsOf } from "./hints";
import { Logs } from "./Logs";
import styles from "./Usage.module.css";

/** How the server is: what it runs, who answers for models, and what its log says. */
export default function Health() {
  const { t } = useTranslation();
  const me = useMe().data;
  const server = useServer(5_000);
  const llm = useQuery({
    queryKey: ["health", "llm"],
    queryFn: ({ signal }) => api.get<Schema<"ModelsSaid">>("/v1/llm", { signal }),
    refetchInterval: 5_000,
    enabled: may(me, "llm:read"),
  });
  return (
    <Page title={t("health.title")} about={t("health.about")}>
      <Loaded query={server}>
        {(facts) => (
          <>
            <Hints facts={facts} llm={llm.data} />
            <div className={styles.cards}>
              <Server facts={facts} />
              <Boxes facts={facts} />
              {llm.isEnabled && (
                <Card title={t("health.models")}>
                  <Loaded query={llm} rows={3}>
                    {(said) => <Providers said={said} />}
                  </Loaded>
                </Card>
              )}
              <Agents facts={facts} />
            </div>
          </>
        )}
      </Loaded>
      {may(me, "admin") && <Logs />}
    </Page>
  );
}

function Card({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className={styles.card} aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function Hints({ facts, llm }: { facts: ServerFacts; llm: Schema<"ModelsSaid"> | undefined }) {
  const { t } = useTranslation();
  const hints = hintsOf(facts, llm);
  const titled = (kind: string) => t(`chat.kindTitle.${kind}`, kind);
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
          {t(`health.hints.${id}`, values.kind ? { ...values, kind: titled(String(values.kind)) } : values)}{" "}
          {id === "scripts" && <Link href="/settings/models">{t("health.connect")}</Link>}
        </li>
      ))}
    </ul>
  );
}

function Server({ facts }: { facts: ServerFacts }) {
  const { t } = useTranslation();
  return (
    <Card title={t("health.server")}>
      <dl className={styles.facts}>
        <dt>{t("health.version")}</dt>
        <dd>{facts.version}</dd>
        <dt>{t("health.started")}</dt>
        <dd>
          <Time at={facts.startedAt} />
        </dd>
        <dt>{t("health.backends")}</dt>
        <dd>{facts.backends.join(", ")}</dd>
        <dt>{t("health.disk")}</dt>
        <dd>{t("health.diskFree", { free: size(facts.disk.free), total: size(facts.disk.total) })}</dd>
        <dt>{t("health.tenant")}</dt>
        <dd>
          <bdi>{facts.tenant}</bdi>
        </dd>
      </dl>
    </Card>
  );
}

function Boxes({ facts }: { facts: ServerFacts }) {
  const { t } = useTranslation();
  const states = Object.entries(facts.sandboxes);
  return (
    <Card title={t("health.sandboxes")}>
      {states.length === 0 ? (
        <p className={styles.note}>{t("health.noBoxes")}</p>
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
    </Card>
  );
}

function Providers({ said }: { said: Schema<"ModelsSaid"> }) {
  const { t } = useTranslation();
  const { archive } = said;
  return (
    <>
      <ul className={styles.plainList}>
        {said.providers.map((provider) => (
          <li key={provider.name}>
            <span>
              <bdi>{provider.name}</bdi> <span className={styles.note}>{provider.kind}</span>
            </span>
            <ProviderState provider={provider} />
          </li>
        ))}
      </ul>
      {said.providers.length === 0 && <p className={styles.note}>{t("health.noProviders")}</p>}
      <dl className={styles.facts}>
        <dt>{t("health.archive")}</dt>
        <dd>{t(`health.archives.${archive.enabled ? archive.durability : "off"}`)}</dd>
        <dt>{t("health.waiting")}</dt>
        <dd>{archive.waitingBytes > 0 ? <Badge tone="warning">{size(archive.waitingBytes)}</Badge> : size(0)}</dd>
        <dt>{t("health.lost")}</dt>
        <dd>{archive.lost > 0 ? <Badge tone="danger">{archive.lost}</Badge> : 0}</dd>
      </dl>
    </>
  );
}

function Agents({ facts }: { facts: ServerFacts }) {
  const { t } = useTranslation();
  return (
    <Card title={t("health.agents")}>
      <ul className={styles.plainList}>
        {facts.agents.chat.map((agent) => (
          <li key={agent.name}>
            <span>
              <bdi>{agent.name}</bdi>{" "}
              {agent.name === facts.agents.default && <span className={styles.note}>{t("health.default")}</span>}
            </span>
            {agent.ready ? (
              <Badge tone="good">{t("health.ready")}</Badge>
            ) : (
              <Badge title={agent.missing}>{agent.missing ?? t("health.notReady")}</Badge>
            )}
          </li>
        ))}
      </ul>
    </Card>
  );
}
